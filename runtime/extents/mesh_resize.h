// Meshes with axes of other sizes. The axes of all meshes over the same ranks are products of
// common pieces, digits of a rank's number; a piece has one size wherever it occurs.
#pragma once

#include "ir/program.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include "llvm/Support/Error.h"

#include <string>
#include <utility>
#include <vector>

namespace spmd::runtime {

class MeshResize {
public:
  // An error: meshes that cut one another.
  static llvm::Expected<MeshResize> make(const ir::Program &program);

  // A name of an axis of any mesh. An error: no such axis, or a size that its pieces cannot have.
  llvm::Error set(const ir::Program &program, llvm::StringRef axis, int64_t size);
  // All that have no size of their own yet: at most 2.
  void shrink();
  // Sizes that are symbols take the values of these. An error: one has none.
  llvm::Error resolve(const ir::Program &program,
                      llvm::function_ref<std::optional<int64_t>(ir::Extent)> value);
  bool changes() const;

  int64_t old_size(const ir::Axis &axis) const;
  int64_t new_size(const ir::Axis &axis) const;
  // The rank that stands where this one stood; of coordinates that are gone the last that is left.
  int64_t rank(int64_t old) const;

  // Meshes, groups and the world. Axes of one rank leave declared types.
  llvm::Error apply(ir::Program &program) const;

private:
  struct Piece {
    int64_t stride, size;         // as they are
    int64_t new_stride, new_size; // as they will be
    bool stated = false;
  };
  // Those that make up an atom, innermost first.
  llvm::MutableArrayRef<Piece> pieces_of(ir::Atom atom);
  llvm::ArrayRef<Piece> pieces_of(ir::Atom atom) const;
  ir::Layout layout(llvm::ArrayRef<ir::Atom> old) const;
  void place();               // strides from sizes
  std::vector<Piece> pieces_; // innermost first
};

} // namespace spmd::runtime
