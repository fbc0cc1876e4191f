//! Byte pair merging: neighbouring symbols of a text join, the best pair first and the leftmost of
//! equals, until no pair is known. What "known" and "best" mean is the vocabulary's business.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A symbol that is no token by itself.
pub const NO_ID: u32 = u32::MAX;

const END: u32 = u32::MAX;

#[derive(Clone, Copy)]
pub struct Symbol {
    pub id: u32,
    pub begin: u32,  // bytes of the text
    pub length: u32, // 0: joined into the symbol before it
    previous: u32,
    next: u32,
}

impl Symbol {
    pub fn end(&self) -> usize {
        (self.begin + self.length) as usize
    }
}

pub trait Pairs {
    /// The rank (lowest first) and id of the token that two neighbours make, if they make one.
    fn join(&self, left: &Symbol, right: &Symbol) -> Option<(u32, u32)>;
}

/// A pair that could join, ordered by rank, then from left to right.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    length: u32, // of both together: differs from the symbols' once either has changed
    id: u32,
}

/// Working memory, kept from word to word.
#[derive(Default)]
pub struct Merger {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Reverse<Candidate>>,
}

impl Merger {
    /// Joins the symbols `first` gives (id, byte length; from left to right) as far as `pairs`
    /// knows how, and hands each that remains to `emit`.
    pub fn run(
        &mut self,
        first: impl Iterator<Item = (u32, u32)>,
        pairs: &impl Pairs,
        mut emit: impl FnMut(&Symbol),
    ) {
        self.symbols.clear();
        self.heap.clear();
        let mut begin = 0;
        for (id, length) in first {
            let index = self.symbols.len() as u32;
            let previous = index.checked_sub(1).unwrap_or(END);
            self.symbols.push(Symbol { id, begin, length, previous, next: index + 1 });
            begin += length;
        }
        let Some(last) = self.symbols.last_mut() else { return };
        last.next = END;
        for left in 0..self.symbols.len() as u32 - 1 {
            self.consider(left, left + 1, pairs);
        }
        while let Some(Reverse(best)) = self.heap.pop() {
            self.apply(&best, pairs);
        }
        let mut index = 0;
        while index != END {
            let symbol = &self.symbols[index as usize];
            emit(symbol);
            index = symbol.next;
        }
    }

    fn consider(&mut self, left: u32, right: u32, pairs: &impl Pairs) {
        if left == END || right == END {
            return;
        }
        let (a, b) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        if let Some((rank, id)) = pairs.join(a, b) {
            let length = a.length + b.length;
            self.heap.push(Reverse(Candidate { rank, left, length, id }));
        }
    }

    fn apply(&mut self, best: &Candidate, pairs: &impl Pairs) {
        let left = self.symbols[best.left as usize];
        if left.length == 0 || left.next == END {
            return;
        }
        let right = self.symbols[left.next as usize];
        if left.length + right.length != best.length {
            return;
        }
        self.symbols[left.next as usize].length = 0;
        if right.next != END {
            self.symbols[right.next as usize].previous = best.left;
        }
        let joined = &mut self.symbols[best.left as usize];
        joined.id = best.id;
        joined.length = best.length;
        joined.next = right.next;
        self.consider(left.previous, best.left, pairs);
        self.consider(best.left, right.next, pairs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids are letters; "ab" → 'X' (rank 1), "bc" → 'Y' (rank 0), "Xc" → 'Z' (rank 2).
    struct Letters;
    impl Pairs for Letters {
        fn join(&self, left: &Symbol, right: &Symbol) -> Option<(u32, u32)> {
            match (left.id as u8, right.id as u8) {
                (b'a', b'b') => Some((1, b'X'.into())),
                (b'b', b'c') => Some((0, b'Y'.into())),
                (b'X', b'c') => Some((2, b'Z'.into())),
                _ => None,
            }
        }
    }

    fn merged(text: &str) -> String {
        let mut out = String::new();
        Merger::default().run(text.bytes().map(|b| (b.into(), 1)), &Letters, |symbol| {
            out.push(symbol.id as u8 as char);
        });
        out
    }

    #[test]
    fn best_pair_first() {
        assert_eq!(merged(""), "");
        assert_eq!(merged("ab"), "X");
        assert_eq!(merged("abc"), "aY");
        assert_eq!(merged("ababc"), "XaY");
        assert_eq!(merged("cabab"), "cXX");
    }
}
