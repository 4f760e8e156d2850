// A stream: a header like a document without `ops`, then one record per line. The last line may be
// torn off, and what was read before it stands.
#include "ir/json/read/reader.h"

#include <fmt/format.h>

namespace spmd::ir {

void JsonReader::records() {
  do
    while (!json_.at_end() && !ended_) {
      json_.begin_record();
      if (json_.is_truncated_record())
        break;
      record();
      // A region's function stands before its first use.
      attributes_.check_functions();
      attributes_.forget_functions();
    }
  while (!ended_ && json_.next_window());
  if (json_.failed())
    return;
  declarations_.late_gradients();
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
    bodies_.op();
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
    tables_.files();
  if (members.at(Locs))
    tables_.locs();
  if (members.at(Scopes))
    tables_.scopes();
  if (members.at(Contexts)) {
    tables_.contexts();
    in_.context = ContextId{0};
  }
  if (members.at(Functions))
    bodies_.functions();
  if (members.at(Params))
    declarations_.params();
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
    declarations_.outputs();
}

} // namespace spmd::ir
