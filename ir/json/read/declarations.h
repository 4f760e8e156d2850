// Parameters with their gradient contracts, and outputs.
#pragma once

#include "ir/json/read/tables.h"
#include "ir/json/read/values.h"

namespace spmd::ir {

class JsonDeclarationReader : JsonPart {
public:
  JsonDeclarationReader(JsonInput &input, JsonTypeReader &types, JsonValueReader &values,
                        JsonTableReader &tables)
      : JsonPart(input), types_(types), values_(values), tables_(tables) {}

  void function_params(Function &function, MeshId mesh);
  void params();
  void late_gradients();
  void outputs();

private:
  void param();
  GradContract gradient(MeshId mesh, std::optional<unsigned> rank);
  void syncs(std::vector<Sync> &out, MeshId mesh);
  void hints(std::vector<SyncHint> &out, MeshId mesh);
  void output();

  JsonTypeReader &types_;
  JsonValueReader &values_;
  JsonTableReader &tables_;
  // Parameters whose `grad_of` waits for the ops, and where it stands.
  struct LateGradient {
    ValueId value;
    ValueName of;
    uint64_t offset;
    std::string path;
  };
  std::vector<LateGradient> late_gradients_;
};

} // namespace spmd::ir
