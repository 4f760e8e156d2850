// The text form of a program: tables, functions in order of first use, declarations, statements,
// outputs, each on one line; instructions in another context than the one around them stand in
// `with` or `local` blocks.
//
// Beyond ir/README.md, the text form spells what only JSON had:
// - `mesh m` alone makes a declared mesh the current one again; `dp = 4 local "role"` in a mesh
//   gives an axis its policy and role; `group "k" = [4:1] offset 2`;
// - `file "path" { sha256 = "..." }`; `rule f like g`; `trace { x_key = "JSON" }`;
// - `with { global = a }` takes axes out of the local ones, `local` adds to those around;
// - `at "f.py":3:5-3:9 fn "g" from "h.py":7` has ends, functions and callers, innermost first, and
//   may follow `suppress` too;
// - `%y grad_of %x requires_grad = op` (or `no_grad`) beside `aliases`; `{ bwd_of = %x }`;
// - `f32[...]` is a shape of unknown rank, `?[8]` one of unknown dtype, `?[...]` neither;
// - `null` is a claim that says nothing; `in_types` and `out_types` are lists of types;
// - `sync = { (a, b) = avg }` is one reduction over two axes;
// - `func @f(%x) { mesh = m } {` has a context, `func @f(%x) -> ()` no results;
// - `expect error name axes`, `expect warning name axes` and `expect %x: T` end a statement;
// - `"odd name" %x` is an op, `{ "odd key" = 1 }` a key, `%"a//b"` a value whose name needs quotes.
#include "ir/text/print/bodies.h"
#include "ir/text/print/contexts.h"
#include "ir/text/print/declarations.h"
#include "ir/text/print/header.h"

#include "ir/dialect/dialect.h"
#include "ir/input/input.h"
#include "ir/text/text.h"

namespace spmd::ir {

static std::string print_program(const Program &program, TextTypes types) {
  TextLines lines;
  TextBodies bodies(program, types, lines);
  TextHeader(program, lines).print(types.mesh());
  bodies.functions();
  TextDeclarations declarations(program, types, lines);
  for (const Param &row : program.params)
    declarations.param(row);
  bodies.body(program.main, top_context(program));
  for (const Output &row : program.outputs)
    declarations.output(row);
  return lines.take();
}

std::string print_text(const Program &program) {
  return print_program(program, {program, Dialect::Spmd, std::nullopt});
}

std::string print_text(const Program &program, Dialect words) {
  return print_program(program, {program, Dialect::Spmd, words});
}

std::string print_text_in_dialect(const Program &program) {
  return print_program(program, {program, dialect_of(program), std::nullopt});
}

std::string print_inst(const Program &program, InstId id) {
  TextTypes types(program, Dialect::Spmd, std::nullopt);
  types.enter(context_of(program, program.insts[id].context).mesh);
  const InstText text(program, types);
  return text.results(program.insts[id], false) + text.operation(id);
}

} // namespace spmd::ir
