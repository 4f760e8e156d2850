// Attributes of an op. Equal ones are found again by their text.
#pragma once

#include "ir/json/read/types.h"

namespace spmd::ir {

// What the meaning of attributes depends on.
struct JsonOpShape {
  MeshId mesh;
  bool states_type = false;                              // the op takes a whole type
  llvm::SmallVector<std::optional<unsigned>, 4> in, out; // numbers of dimensions, where known
  std::optional<unsigned> rank_in(size_t i) const { return i < in.size() ? in[i] : std::nullopt; }
  std::optional<unsigned> rank_out(size_t i) const {
    return i < out.size() ? out[i] : std::nullopt;
  }
};

class JsonAttributeReader : JsonPart {
public:
  JsonAttributeReader(JsonInput &input, JsonTypeReader &types) : JsonPart(input), types_(types) {}

  // Reports functions that attributes name and nothing defines.
  void check_functions();
  AttrsId attrs(llvm::StringRef raw, const JsonOpShape &op);
  AttrValue plain_value();
  // A literal that JSON has no form for, as `{"num": "inf"}`; none if the object at hand is no such
  // thing. `strings`: whether `{"str": ..}` is one.
  std::optional<AttrValue> wrapped(bool strings);
  void regions(AttrDict &dict);
  // What was named up to here is no matter any more.
  void forget_functions() { region_uses_.clear(); }

private:
  AttrDict read_attrs(const JsonOpShape &op);
  std::optional<AttrValue> whole_type(MeshId mesh, std::optional<unsigned> rank);
  bool is_nested_claim();
  AttrValue attr_value(llvm::StringRef name, const JsonOpShape &op);
  AttrValue kinds_value();
  AttrValue axes_value();
  AttrValue claim_list(const JsonOpShape &op, bool results);
  AttrValue plain_object();
  std::optional<AttrValue> wrapped_value(const JsonMembers &members);

  JsonTypeReader &types_;
  std::vector<std::pair<FunctionId, Token>> region_uses_; // functions that attributes name
  RawCache attrs_cache_;
};

} // namespace spmd::ir
