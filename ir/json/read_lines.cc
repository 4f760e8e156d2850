// A stream: a header like a document without `ops`, then one record per line. The last line may be
// torn off, and what was read before it stands.
#include "ir/json/read.h"

#include <fmt/format.h>

namespace spmd::ir {

void JsonReader::records() {
  do
    while (!json_.at_end() && !ended_) {
      json_.begin_record();
      if (json_.is_torn())
        break;
      record();
      // A region's function stands before its first use.
      check_functions();
      region_uses_.clear();
    }
  while (!ended_ && json_.next_window());
  if (json_.failed())
    return;
  late_gradients();
  if (!ended_)
    json_.error_at(json_.torn() ? json_.torn()->offset : json_.offset(json_.at()),
                   "trace-truncated",
                   fmt::format("the stream ends after {} op{} without an `end` record",
                               builder_.body_size(), builder_.body_size() == 1 ? "" : "s"),
                   "");
  else if (!json_.at_end())
    json_.fail(json_.offset(json_.at()), "trace-syntax", "text follows the `end` record");
}

void JsonReader::record() {
  llvm::StringRef kind = json_.first_key();
  if (kind == "def")
    definitions();
  else if (kind == "end")
    end();
  else
    op();
}

// Appends to tables, each after those that it refers to.
void JsonReader::definitions() {
  static constexpr std::array<std::string_view, 1> kRecord = {"def"};
  static constexpr std::array<std::string_view, 6> kKeys = {"files",    "locs",      "scopes",
                                                            "contexts", "functions", "params"};
  enum { Files, Locs, Scopes, Contexts, Functions, Params };
  auto record = object(kRecord);
  if (!record.at(0))
    return;
  auto members = object(kKeys);
  if (members.at(Files))
    files();
  if (members.at(Locs))
    locs();
  if (members.at(Scopes))
    scopes();
  if (members.at(Contexts)) {
    contexts();
    context_ = ContextId{0};
  }
  if (members.at(Functions))
    functions();
  if (members.at(Params))
    params();
}

void JsonReader::end() {
  static constexpr std::array<std::string_view, 1> kRecord = {"end"};
  static constexpr std::array<std::string_view, 2> kKeys = {"op_count", "outputs"};
  auto record = object(kRecord);
  if (!record.at(0))
    return;
  auto members = object(kKeys);
  ended_ = true;
  require(members, 0, kKeys[0]);
  int64_t count = builder_.body_size(), all = count + static_cast<int64_t>(program_.insts.size());
  std::optional<int64_t> stated = members.at(0) ? json_.integer(0) : std::nullopt;
  for (std::optional<int64_t> announced : {stated, program_.op_count})
    if (announced && *announced != count && *announced != all) // bodies may be counted too
      json_.error(members.token(0), "trace-truncated",
                  fmt::format("{} ops are announced, and {} stand here", *announced, count));
  if (members.at(1))
    outputs();
}

} // namespace spmd::ir
