// A program in the vocabulary of a framework: op names, collectives, and, where it is printed with
// `ir::print_text_in_dialect`, types. What it is printed in is held against the rules: an
// instruction that would mean something else in the other words is left in ours and named.
#pragma once

#include "checker/check.h"

#include "ir/dialect/dialect.h"

#include <string>
#include <vector>

namespace spmd::checker {

// What a vocabulary has no word for, or says with a word that reads back as something else.
struct NoEquivalent {
  Place place;      // in the translated program
  std::string text; // "`broadcast` on tp: JAX has no collective with a root"
};

// The program becomes one of that dialect. Types of values are as before; findings, too, where
// nothing is no_equivalent. In program order, outputs last.
std::vector<NoEquivalent> translate(ir::Program &program, const CheckOptions &options,
                                    ir::Dialect to);

} // namespace spmd::checker
