// From what a program writes about a value to its type, and back: kind words per axis, partition
// spec, scale. Both readers and both printers go through here, so that text and JSON mean the same
// by the same words.
#pragma once

#include "ir/attrs.h"
#include "ir/program.h"

#include <optional>
#include <string>

namespace spmd::ir {

// Collects the claims about one value on one mesh. A claim on a flattened axis is a claim on its
// pieces, in order; axes of size 1 are looked up and then left out; `P(avg)` is P with the size of
// its axis in the scale.
class ClaimBuilder {
public:
  ClaimBuilder(Program &program, MeshId mesh) : program_(program), mesh_(mesh) {}

  // The order of the claims means something (text): S(0)@a S(0)@b shards dimension 0 by a, then by
  // b. Otherwise two axes may not claim the same S(i).
  void in_order() { ordered_ = true; }
  // One kind on all these axes, outermost first; no axes: on every axis not otherwise stated (JSON
  // `*`). Here and below: false if something is wrong; finish() then says what.
  bool claim(WrittenKind word, llvm::ArrayRef<AxisRef> axes = {});
  // The axes that shard one dimension, outermost first: an entry of a spec, or the `@` on an
  // extent. By itself it is the claim S(dim); V may be claimed on the same axes too.
  bool shard(unsigned dim, llvm::ArrayRef<AxisRef> axes);
  // The entries are those of a whole spec with one entry per dimension (JSON): the axes in it must
  // be claimed V, and S(i) may not stand beside it.
  void whole_spec(unsigned length) { spec_length_ = length; }
  bool scale(ScaleId scale);

  struct Result {
    TypeId type;       // none: nothing is claimed, or an error
    std::string error; // of `trace-type`; empty if all is well
  };
  // `rank`: the number of dimensions, where it is known.
  Result finish(std::optional<unsigned> rank);

private:
  struct Entry {
    AxisId axis;
    WrittenKind word;
  };
  struct Shards {
    int dim;   // negative: from the end
    bool spec; // by shard(), not by S(i)
    llvm::SmallVector<AxisId, 2> axes;
  };

  bool fail(std::string message);
  // Typed axes behind the names, in order; fails on a name that is not there.
  bool resolve(llvm::ArrayRef<AxisRef> refs, llvm::SmallVectorImpl<AxisId> &axes);
  bool place_kinds(Type &type);
  bool place_rest(Type &type);
  bool place_shards(Type &type, std::optional<unsigned> rank);
  bool place_shard(Type &type, const Shards &shards, unsigned dim);
  void place(Type &type, AxisId axis, WrittenKind word);
  std::optional<unsigned> dimension(int dim, std::optional<unsigned> rank);
  bool check_spec(std::optional<unsigned> rank);
  std::string axis_name(AxisId axis) const;

  Program &program_;
  MeshId mesh_;
  llvm::SmallVector<Entry, 4> entries_;
  llvm::SmallVector<Shards, 2> shards_;
  std::optional<WrittenKind> all_;
  AxisSet claimed_; // by claim()
  AxisSet sharded_; // by shard()
  std::optional<unsigned> spec_length_;
  bool ordered_ = false;
  Scale scale_;
  std::string error_;
};

// The kind on an axis as programs write it, V for a shard; none where nothing is claimed.
std::optional<WrittenKind> kind_word(const Type &type, AxisId axis);
// The axes that shard a dimension, outermost first.
llvm::SmallVector<AxisId, 2> shards_of(const Type &type, unsigned dim);
inline AxisSet set_of(llvm::ArrayRef<AxisId> axes) {
  AxisSet set;
  for (AxisId axis : axes)
    set |= axis;
  return set;
}
// True where a claim would print as something: a kind on some axis, or a scale.
bool states_something(const Program &program, const Type &type);
// In what the facts about a symbol contradict one another; empty if they do not.
std::string contradiction(const SymbolInfo &symbol);

// The axis that a reference names, flattened or not, seen from a mesh; else `error` says what is
// wrong with it (`trace-type`, or `trace-reference` where the mesh is not known) and names what is
// nearest.
struct FoundAxis {
  MeshId mesh;
  AxisId axis;
};
std::optional<FoundAxis> find_axis(const Program &program, MeshId mesh, AxisRef ref,
                                   std::string &error);
// The mesh that claims about a value speak of: stated, or that of its type, or the one around it.
MeshId mesh_of(const Program &program, ValueId value, MeshId around);
MeshId find_mesh(const Program &program, llvm::StringRef name); // none if there is no such mesh
// Empty, or which base of the scale is neither an axis of some mesh nor a symbol.
std::string check_scale(const Program &program, const Scale &scale);
// The axis of the mesh that a factor of a scale names, as `axis` or `mesh.axis`; none if it is no
// such name.
std::optional<AxisId> named_in(const Program &program, const Mesh &mesh, StringId base);
// ``, nearest is `tp```; empty if nothing is near.
std::string nearest_suffix(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> known);

} // namespace spmd::ir
