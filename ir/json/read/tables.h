// Tables that instructions refer to by index: files, locations, scopes, contexts; and
// suppressions and rules, which no instruction refers to.
#pragma once

#include "ir/json/read/meshes.h"

namespace spmd::ir {

class JsonTableReader : JsonPart {
public:
  JsonTableReader(JsonInput &input, JsonTypeReader &types) : JsonPart(input), types_(types) {}

  void files();
  void locs();
  void scopes();
  void contexts();
  void rules();
  void suppressions();
  LocId location(const JsonMembers &members, unsigned loc, unsigned scope);
  size_t context_count() const { return contexts_.size(); }
  ContextId context(uint32_t index) const { return contexts_[index]; }

private:
  Frame loc();
  Context context();
  void suppression();

  JsonTypeReader &types_;
  std::vector<FrameId> frames_;
  std::vector<StringId> scopes_;
  std::vector<ContextId> contexts_; // by their index in the trace
};

} // namespace spmd::ir
