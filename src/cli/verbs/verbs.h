// The verbs of `mantou`: one file each beside this one, one line each in the table of verbs.cc.
// A verb runs on the main thread, writes results to standard output and returns the exit code; what
// goes wrong is an Error, which main prints.
#pragma once

#include <span>

#include "cli/flags.h"

namespace mantou::cli {

std::span<const Verb> verbs();  // in the order of the help

// kInvalidArgument with the nearest verb when there is no such one.
const Verb& find_verb(std::string_view name);

int run_generate(const Options& options);
int run_chat(const Options& options);
int run_serve(const Options& options);
int run_bench(const Options& options);
int run_tokenize(const Options& options);
int run_inspect(const Options& options);
int run_fit(const Options& options);
int run_get(const Options& options);
int run_ls(const Options& options);
int run_gc(const Options& options);
int run_version(const Options& options);
int run_help(const Options& options);

}  // namespace mantou::cli
