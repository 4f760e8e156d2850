// What a program leaves implicit made explicit, before anything is differentiated: redistributions
// of operands that an op does not accept as they are, in regions `with { implicit = true }`, and
// the sums over ranks that ops state then (checker/README.md, "Implicit redistribution").
#pragma once

#include "checker/check.h"

#include "rules/redistribute/request.h"

namespace spmd::checker {

// One redistribution that was put in.
struct Insertion {
  ir::InstId first_use; // the op that it was made for
  uint32_t uses = 0;    // operands that are it
  ir::ValueId of, value;
  ir::TypeId had, wanted;
  std::string op, operand, reason; // names of the op, of its operand, of what was found otherwise
  uint64_t forward_bytes = 0,
           backward_bytes = 0; // of the busiest rank, once; in a body for its first call
  uint32_t collectives = 0;    // forward
  bool gradient = false;       // one passes
  // The backward of a use reads the operand: who moves inside of ops has to move it again there.
  bool read_again = false;
};
// A sum over ranks that an op did not state.
struct StatedSum {
  ir::InstId inst;
  ir::AxisSet axes;
};
struct Elaboration {
  std::vector<Insertion> insertions; // in program order
  std::vector<StatedSum> sums;
  uint32_t cut = 0; // ops for which the search ended at its budget: something cheaper may exist
  std::vector<ir::InstId>
      torn; // ops of bodies that calls with other types need otherwise: left as they are
};

// The program is the same in what it means, and its forms of what is implicit are none: what is
// still found by `check` is wrong. Elaborated again it does not change.
Elaboration elaborate(ir::Program &program, const CheckOptions &options = {},
                      const rules::redistribute::Topology &topology = {});

} // namespace spmd::checker
