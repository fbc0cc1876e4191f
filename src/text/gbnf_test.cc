#include "text/gbnf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/grammar_test_helper.h"

namespace mantou::text {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Grammar> compile(const std::string& gbnf) {
  return Grammar::compile(small_tokenizer(), {.kind = GrammarKind::kGbnf, .text = gbnf});
}

struct Example {
  const char* gbnf;
  std::vector<const char*> good, bad;
};

// The kinds of grammar that are usual with llama.cpp; the texts by hand.
const Example kExamples[] = {
    // JSON
    {R"~(# a value and nothing after it
root   ::= value
value  ::= object | list | text | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            text ":" ws value
    ("," ws text ":" ws value)*
  )? "}" ws

list   ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

text ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws

# what may stand between values
ws ::= ([ \t\n] ws)?
)~",
     {R"({"a": [1, -2.5e+3, {"b": null}], "c\n\"\u00e9": "d"})", "[]", "{\n\t}", "3 ",
      "\"\xE4\xBD\xA0\""},
     {"", "{", "[1,]", "01", R"({"a" 1})", R"({a:1})", "\"\n\"", "nul", R"("\x")", "1.", "[1 2]",
      "{}{}"}},
    // Arithmetic: digits, names and blanks that may go on into what follows
    {R"~(
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)~",
     {"x+1=2\n", "a_1 *(b -22) = c\n", "1=1\n\n\n", "x =y\nz= 3 \n"},
     {"x+1=2", "=1\n", "x==1\n", "(x=1\n", "1x=2\n", "x+=2\n", " x=1\n"}},
    // A list in Markdown
    {R"~(
root ::= item+
# not the marks of other lists
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"
)~",
     {"- a\n", "- a b - c\n- \xC3\xA9\n"},
     {"", "- \n", "a\n", "- a", "- a\rb\n", "- a\xC2\x85\n", "- a\n\n"}},
    // A language like C: keywords that are names as well
    {R"~(
root ::= (declaration)*
declaration ::= type name "(" parameter? ")" "{" statement* "}"
type ::= "int" ws | "float" ws | "char" ws
name ::= [a-zA-Z_] [a-zA-Z_0-9]*
parameter ::= type name
statement ::= (
    ( type name ws "=" ws expression ";" ) |
    ( name ws "=" ws expression ";" ) |
    ( name ws "(" arguments? ")" ";" ) |
    ( "return" ws expression ";" ) |
    ( "while" "(" condition ")" "{" statement* "}" ) |
    ( singleLine ) | ( multiLine )
)
condition ::= expression relation expression
relation ::= ("<=" | "<" | "==" | "!=" | ">=" | ">")
expression ::= term (("+" | "-") term)*
term ::= factor(("*" | "/") factor)*
factor ::= name | number | unary | name "(" arguments? ")" | parenthesis
unary ::= "-" factor
parenthesis ::= "(" ws expression ws ")"
arguments ::= expression ("," ws expression)*
number ::= [0-9]+
singleLine ::= "//" [^\n]* "\n"
multiLine ::= "/*" ( [^*] | ("*" [^/]) )* "*/"
ws ::= ([ \t\n]+)
)~",
     {"int f(){}", "int f(char c){int x = 3*(  a+-b );x = y;return x;}",
      "char g(){while(a<=b){f (1, x);}// c\n/* a ** b */}", "float intx(){int inty = int2;}"},
     {"int f()", "intf(){}", "int f(){x=3;}", "int f(){return x}", "int f(){x = (3);}",
      "int f(){/* }", "bool f(){}"}},
    // Kana, as code points
    {R"~(
root   ::= jp-char+ ([ \t\n] jp-char+)*
jp-char ::= hiragana | katakana | punctuation | cjk
hiragana    ::= [ぁ-ゟ]
katakana    ::= [ァ-ヿ]
punctuation ::= [、-〾]
cjk         ::= [一-鿿]
)~",
     {"こんにちは", "世界 カタカナ、。", "あ\nい"},
     {"", "a", "こ a", " こ", "こ  こ", "\xC3\xA9"}},
    // Chess: counted moves
    {R"~(
root   ::= (
    # the first move has its own number
    "1. " move " " move "\n"

    # what follows may end where it likes
    ([1-9] [0-9]? ". " move " " move "\n")+
)
move   ::= (pawn | nonpawn | castle) [+#]?

# as in "Nbd2" or "e8=Q"
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn    ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle  ::= "O-O" "-O"?
)~",
     {"1. e4 e5\n2. Nf3 Nc6\n", "1. d4 d5\n2. Nbd2 exd5\n13. O-O O-O-O+\n",
      "1. a8=Q+ Raxb1#\n9. a1 a2\n"},
     {"1. e4 e5\n", "2. e4 e5\n3. a1 a2\n", "1. e9 e5\n2. a1 a2\n", "1. e4 e5\n2. a1 a2",
      "1. O-O-O-O e5\n2. a1 a2\n"}},
};

TEST(Gbnf, UsualGrammars) {
  for (const Example& example : kExamples) {
    const auto grammar = compile(example.gbnf);
    for (const char* text : example.good)
      EXPECT_TRUE(accepts(*grammar, text)) << example.gbnf << text;
    for (const char* text : example.bad)
      EXPECT_FALSE(accepts(*grammar, text)) << example.gbnf << text;
  }
}

const Example kNotation[] = {
    {"root ::= \"a\"  \t# to the end of the line | \"b\"", {"a"}, {"b", "", "ab"}},
    {"\n\n# first\nroot::=\n\n \"a\" b\r\nb ::=\"b\"\r\n", {"ab"}, {"a", "b"}},
    {"root ::= \"a\" |\n  # more\n  \"b\" | (\n \"c\"\n |\n\"d\" )",
     {"a", "b", "c", "d"},
     {"", "ab"}},
    {"root ::= \"a\" (\"b\" | ) \"c\"", {"abc", "ac"}, {"a", "ab", "abbc"}},
    {"root ::= |\"a\"", {"", "a"}, {"aa"}},
    {"root ::= \"\" \"a\" \"\"", {"a"}, {""}},
    {R"(root ::= "\x41\u00e9\U0001F600\t\r\n\\\"\[\]")",
     {"A\xC3\xA9\xF0\x9F\x98\x80\t\r\n\\\"[]"},
     {"A"}},
    {R"(root ::= [\x41-C\]\[\\"'^-])",
     {"A", "B", "C", "]", "[", "\\", "\"", "'", "^", "-"},
     {"D", "", "AA"}},
    {"root ::= [-a]", {"-", "a"}, {"b"}},
    {"root ::= [a-c-]", {"a", "b", "-"}, {"d"}},
    {"root ::= [^a-c\xC3\xA9]",
     {"d", "\n", "\xC3\xA8", "\xF0\x9F\x98\x80"},
     {"a", "\xC3\xA9", "", "dd"}},
    {"root ::= .", {"a", "\n", "\xC3\xA9", "\xF0\x9F\x98\x80"}, {"", "aa"}},
    {"root ::= [^]", {"a", "\n"}, {"", "aa"}},
    {"root ::= \"ab\"?", {"", "ab"}, {"a", "abab"}},
    {"root ::= \"ab\"+", {"ab", "abab"}, {"", "a", "aba"}},
    {"root ::= \"ab\"*", {"", "abab"}, {"b"}},
    {"root ::= [ab]{2}", {"ab", "bb"}, {"a", "aba"}},
    {"root ::= [ab]{2,}", {"ab", "bbabb"}, {"a", ""}},
    {"root ::= (\"a\" | \"b\"){ 1 , 3 }", {"a", "aba"}, {"", "abab"}},
    {"root ::= \"a\"{0}", {""}, {"a"}},
    {"root ::= \"a\"{0,2}{2}", {"", "a", "aaaa"}, {"aaaaa"}},
    {"root ::= Rule-2 rule-2\nRule-2 ::= \"a\"\nrule-2 ::= \"b\"", {"ab"}, {"aa"}},
    {"root ::= 1a\n1a ::= \"x\" 1a | \"y\"", {"y", "xxy"}, {"x", ""}},
    {"unused ::= root\nroot ::= \"a\"", {"a"}, {}},
};

TEST(Gbnf, Notation) {
  for (const Example& example : kNotation) {
    const auto grammar = compile(example.gbnf);
    for (const char* text : example.good)
      EXPECT_TRUE(accepts(*grammar, text)) << example.gbnf << "\n" << text;
    for (const char* text : example.bad)
      EXPECT_FALSE(accepts(*grammar, text)) << example.gbnf << "\n" << text;
  }
}

TEST(Gbnf, Tokens) {
  const Tokenizer& tokenizer = small_tokenizer();
  const TokenId start = tokenizer.id_of("<|im_start|>"), end = tokenizer.id_of("<|im_end|>");
  const auto grammar =
      compile("root ::= \"a\" <|im_start|> !<|im_start|>* <[361]> <tool_call> \"b\"");
  ASSERT_EQ(start, 361);
  GrammarMatcher matcher(*grammar);
  ASSERT_TRUE(matcher.commit(tokenizer.id_of("a")));
  EXPECT_FALSE(matcher.commit(tokenizer.id_of("a")));
  ASSERT_TRUE(matcher.commit(start));
  const Mask mask = mask_of(matcher, tokenizer);
  for (const TokenId id : {tokenizer.id_of("a"), start, tokenizer.id_of("[GAP]")})
    EXPECT_TRUE(has(mask, id));
  EXPECT_FALSE(has(mask, end));
  ASSERT_TRUE(matcher.commit(tokenizer.id_of("a")));
  ASSERT_TRUE(matcher.commit(tokenizer.id_of("[GAP]")));
  ASSERT_TRUE(matcher.commit(start));
  EXPECT_FALSE(matcher.commit(start));
  ASSERT_TRUE(matcher.commit(tokenizer.id_of("<tool_call>")));
  ASSERT_TRUE(matcher.commit(tokenizer.id_of("b")));
  EXPECT_TRUE(matcher.is_accepting());
}

const struct {
  const char* gbnf;
  const char* message;
} kErrors[] = {
    {"", "line 1, column 1: there is no rule named root"},
    {"a ::= \"a\"", "there is no rule named root"},
    {"root ::= \"a\"\nb ::= c \"d\"", "line 2, column 7: there is no rule named c"},
    {"root ::= \"a", "line 1, column 10: the string does not end"},
    {"root ::= [a", "line 1, column 10: the character class does not end"},
    {"root ::= []", "line 1, column 10: an empty character class"},
    {"root ::= [b-a]", "line 1, column 11: the range ends before it begins"},
    {"root ::= (\"a\"", "line 1, column 14: expected )"},
    {"root ::= \"a\")", "line 1, column 13: expected an element, | or the end of the line"},
    {"root = \"a\"", "line 1, column 6: expected ::="},
    {"::= \"a\"", "line 1, column 1: expected the name of a rule"},
    {"root ::= \"a\"\n | \"b\"", "line 2, column 2: expected the name of a rule"},
    {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: a second rule named root"},
    {"root ::= *", "line 1, column 10: there is nothing before it to repeat"},
    {"root ::= \"a\"{2", "line 1, column 15: expected }"},
    {"root ::= \"a\"{,2}", "line 1, column 14: expected a number"},
    {"root ::= \"a\"{3,2}", "the most is less than the least"},
    {"root ::= \"a\"{10001}", "line 1, column 14: more than 10000 repetitions"},
    {"root ::= \"\\q\"", "line 1, column 11: unknown escape"},
    {"root ::= \"\\x4\"", "line 1, column 14: expected a hexadecimal digit"},
    {"root ::= \"\\ud800\"", "line 1, column 11: U+D800 is no character"},
    {"root ::= \"\\U00110000\"", "U+110000 is no character"},
    {"root ::= \"\xC3(\"", "line 1, column 11: not UTF-8"},
    {"root ::= \"\xE0\x80\x80\"", "line 1, column 11: not UTF-8"},
    {"root ::= \"\\", "unknown escape"},
    {"root ::= <nothing>", "line 1, column 10: the vocabulary has no token <nothing>"},
    {"root ::= <[x]>", "line 1, column 10: a token's id is a number"},
    {"root ::= <a", "line 1, column 10: expected a token"},
    {"root ::= root \"a\" | \"b\"", "line 1, column 1: the rule root begins with itself"},
    {"root ::= x\nx ::= y? \"\" z\ny ::= \"y\"\nz ::= x \"b\" | \"z\"", "begins with itself"},
    {"root ::= (\"\" root)*", "begins with itself"},
    {"root ::= \"a\" x\nx ::= \"b\" x", "line 1, column 14: the rule x can never end"},
    {"root ::= \"a\" x | \"b\"\nx ::= \"(\" y \")\"\ny ::= \"[\" x \"]\"", "can never end"},
};

TEST(Gbnf, ErrorsNameTheirPlace) {
  for (const auto& c : kErrors) {
    try {
      compile(c.gbnf);
      ADD_FAILURE() << "no error: " << c.gbnf;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.param(), "grammar");
      EXPECT_THAT(error.message(), HasSubstr(c.message)) << c.gbnf;
    }
  }
}

TEST(Gbnf, LongGrammarsAreQuick) {
  std::string chain = "root ::= r0\n", doubling = "root ::= \"(\" root \")\" | r0\n",
              wide = "root ::= \"(\" (";
  for (int i = 0; i < 3000; ++i)
    chain += "r" + std::to_string(i) + " ::= \"a\" r" + std::to_string(i + 1) + "? \"b\"\n";
  chain += "r3000 ::= \"c\" root? \"d\"\n";
  for (int i = 0; i < 60; ++i) {
    const std::string next = " r" + std::to_string(i + 1);
    doubling += "r" + std::to_string(i) + " ::= \"a\" |" + next + next + "\n";
  }
  doubling += "r60 ::= \"b\"";
  for (int i = 0; i < 1000; ++i) wide += "\"w" + std::to_string(i) + "\" root? | ";
  wide += "\"x\") \")\"";
  EXPECT_TRUE(accepts(*compile(chain), "aaabbb"));
  EXPECT_FALSE(accepts(*compile(chain), "aaabb"));
  EXPECT_TRUE(accepts(*compile(doubling), "((aa))"));
  EXPECT_FALSE(accepts(*compile(doubling), "((ab))"));  // a b comes in pairs
  EXPECT_TRUE(accepts(*compile(wide), "(w12(w999))"));
}

}  // namespace
}  // namespace mantou::text
