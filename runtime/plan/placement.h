// Which block of the tensor that is meant a rank holds, by type, local extents and sizes of shards.
#pragma once

#include "runtime/plan/world.h"
#include "runtime/tensor/tensor.h"

#include "rules/apply.h"

namespace spmd::runtime {

// Per dimension: extent on the rank, where the block begins in the whole, extent of the whole.
// Where an axis is V without a dimension the whole is the rank's own tensor on that axis.
struct Block {
  Dims dims, first, whole;
  bool is_whole() const { return dims == whole; }
  friend bool operator==(const Block &, const Block &) = default;
};

// A shape whose extents are numbers; an error names a symbol or an extent that is not known. `who`
// begins the sentence.
llvm::Expected<Dims> dims_of(const ir::Program &program, ir::ShapeId shape, const llvm::Twine &who);

// The lengths of the blocks of a dimension that is cut unevenly; empty if they do not follow.
llvm::SmallVector<int64_t, 8> block_lengths(const ir::Program &program, const ir::UnevenDim &dim,
                                            int64_t blocks);

class Placement {
public:
  // `value`: type, shape and sizes of shards, as the checker knows them. An error names an extent
  // that is no number, or blocks that do not follow (`who` begins the sentence).
  static llvm::Expected<Placement> make(const ir::Program &program, const World &world,
                                        const rules::TensorInfo &value, const llvm::Twine &who);

  // The rank must be on the mesh of the type.
  Block block(const World &world, RankId rank) const;
  const Dims &whole() const { return whole_; } // the extents of all blocks together
  ir::MeshId mesh() const { return mesh_; }
  ir::DType dtype() const { return dtype_; }
  bool even() const { return even_; } // all ranks hold as much

private:
  struct Cut {
    unsigned dim;
    llvm::SmallVector<ir::AxisId, 2> axes; // outermost first
    llvm::SmallVector<int64_t, 8> lengths; // of the blocks
    llvm::SmallVector<int64_t, 8> firsts;  // where they begin
  };
  ir::MeshId mesh_;
  ir::DType dtype_ = ir::DType::Unknown;
  Dims whole_;
  llvm::SmallVector<Cut, 2> cuts_;
  bool even_ = true;
};

// The axes on which each rank has a tensor of its own: V, without a dimension that the axis cuts.
// In mesh order.
llvm::SmallVector<ir::AxisId, 4> per_rank_axes(const ir::Type &type);

// Random numbers are a hash of the place in the whole, of what drew them, and of a stream, so that
// a run and its reference draw the same numbers. `op`: of an instruction in one execution of a
// body, whose path is 0 for the main body. `stream`: of a rank, 1 more than its index on the
// per-rank axes of what is drawn; 0 where there is none.
uint64_t draw_op(uint64_t path, ir::InstId inst);
// The instruction whose random numbers one takes: a derived one those of the op that it is of.
ir::InstId drawn_by(const ir::Program &program, ir::InstId inst);
// The path of a body that an instruction runs: `round` counts calls from 0, region by region in the
// order of CheckedProgram::bodies (scan, while: the iteration).
uint64_t body_path(uint64_t path, ir::InstId site, uint64_t round);
uint64_t draw_stream(const World &world, ir::MeshId mesh, llvm::ArrayRef<ir::AxisId> per_rank,
                     RankId rank);

} // namespace spmd::runtime
