// The parts of the second pass, each with what it follows through the program.
#pragma once

#include "checker/gradual/second_pass/blocks/block_norms.h"
#include "checker/gradual/second_pass/blocks/joined_blocks.h"
#include "checker/gradual/second_pass/blocks/ring_blocks.h"
#include "checker/gradual/second_pass/ranks/expert_rows.h"
#include "checker/gradual/second_pass/ranks/one_rank_addends.h"
#include "checker/gradual/second_pass/ranks/own_counts.h"
#include "checker/gradual/second_pass/ranks/rank_numbers.h"
#include "checker/gradual/second_pass/ranks/root_rank.h"
#include "checker/gradual/second_pass/scales/gradient_addends.h"
#include "checker/gradual/second_pass/scales/number_doubts.h"
#include "checker/gradual/second_pass/scales/rank_means.h"
#include "checker/gradual/second_pass/scales/term_weights.h"

namespace spmd::checker {

struct Parts {
  explicit Parts(WalkState &state);

  void begin() { // an instruction
    zeros.begin();
    lookups.begin();
    norms.begin();
    edges.begin();
    rings.begin();
    joined.begin();
    experts.begin();
    root.begin();
    one_rank.begin();
    own_counts.begin();
    means.begin();
  }
  // What was found of the operands and holds of the first result, whatever its type. `pending`:
  // along which it is an addend by its rule.
  void learn(ir::ValueId value, ir::AxisSet pending) {
    own_counts.learn(value, pending);
    edges.learn(value);
    one_rank.learn(value);
  }

  CurrentInst now; // what all of them share
  ZeroBlocks zeros;
  BlockLookups lookups;
  BlockNorms norms;
  HaloExchange edges;
  RingBlocks rings;
  JoinedBlocks joined;
  DataOrigins origins;
  ExpertRows experts;
  RootRank root;
  OneRankAddends one_rank;
  RankNumbers numbers;
  OwnCounts own_counts;
  RankMeans means;
  TermWeights weights;
  NumberDoubts doubts;
  GradientAddends gradients;
};

} // namespace spmd::checker
