// The canonical JSON document of a program: keys in the order of the format, one entry of a table
// per line, defaults left out; contexts, locations, scopes and files numbered in the order of their
// first use. Relies on the reader giving back the same program; what nothing uses is not printed.
#include "ir/json/print.h"
#include "ir/mesh/symbols.h"

#include "ir/input/json_cursor.h"
#include "ir/support/escape.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::ir {

void JsonPrinter::key(std::string_view name) {
  separate();
  text(name);
  out_ += ": ";
}

void JsonPrinter::text(llvm::StringRef value) {
  out_ += '"';
  append_string(out_, value);
  out_ += '"';
}

void JsonPrinter::text(std::string_view name, StringId value) {
  if (!value.valid())
    return;
  key(name);
  text(p_.strings[value]);
}

void JsonPrinter::number(std::string_view name, int64_t value) {
  key(name);
  fmt::format_to(std::back_inserter(out_), "{}", value);
}

void JsonPrinter::flag(std::string_view name, bool value) {
  key(name);
  out_ += value ? "true" : "false";
}

void JsonPrinter::value_name(std::string_view name, ValueId id) {
  if (!id.valid())
    return;
  key(name);
  value_name(id);
}

void JsonPrinter::top(std::string_view name) {
  if (stream_)
    out_ += out_.size() == 1 ? "" : ", ";
  else
    out_ += out_.size() == 1 ? "\n  " : ",\n  ";
  text(name);
  out_ += ": ";
}

// As they come; those that have no name of their own (`@local_map_3`) last, by number, since text
// has their bodies where they are used.
void JsonPrinter::order_functions() {
  std::vector<std::pair<uint64_t, FunctionId>> unnamed;
  for (uint32_t i = 0; i < p_.functions.size(); ++i) {
    llvm::StringRef name = p_.strings[p_.functions[FunctionId{i}].name];
    uint64_t number = 0;
    if (name.consume_front("@local_map_") && !name.getAsInteger(10, number))
      unnamed.push_back({number, FunctionId{i}});
    else
      functions_.push_back(FunctionId{i});
  }
  llvm::sort(unnamed);
  for (auto [number, id] : unnamed)
    functions_.push_back(id);
}

// Numbers whatever the entries of the tables are referred to by, in the order in which that is
// printed.
void JsonPrinter::number_all() {
  contexts_.add(ContextId{0});
  order_functions();
  for (FunctionId id : functions_) {
    const Function &function = p_.functions[id];
    if (function.context.valid())
      contexts_.add(function.context);
    if (!function.opaque)
      number(function.body);
  }
  for (const Param &param : p_.params)
    number(param.loc);
  number(p_.main);
  for (const Suppression &entry : p_.suppressions)
    number(entry.loc);
  for (FrameId frame : frames_.ids())
    files_.add(p_.frames[frame].file);
  // Nobody else remembers the digest of a file.
  for (size_t i = 0; i < p_.files.size(); ++i)
    if (FileId id{static_cast<uint32_t>(i)}; p_.files[id].sha256.valid())
      files_.add(id);
}

void JsonPrinter::number(const Body &body) {
  for (uint32_t i : insts_of(body)) {
    contexts_.add(p_.insts[InstId{i}].context);
    number(p_.insts[InstId{i}].loc);
  }
}

void JsonPrinter::number(LocId loc) {
  if (!loc.valid())
    return;
  number(p_.locs[loc].frame);
  if (p_.locs[loc].scope.valid())
    scopes_.add(p_.locs[loc].scope);
}

// Callers come first.
void JsonPrinter::number(FrameId frame) {
  llvm::SmallVector<FrameId, 8> chain;
  for (; frame.valid(); frame = p_.frames[frame].caller)
    chain.push_back(frame);
  for (FrameId each : llvm::reverse(chain))
    frames_.add(each);
}

std::string JsonPrinter::print() {
  header();
  top("ops");
  lines(
      insts_of(p_.main), [&](uint32_t i) { op(InstId{i}, ContextId{0}); }, "    ", '[');
  table("outputs", p_.outputs, [&](const Output &row) { output(row); });
  table("suppress", p_.suppressions, [&](const Suppression &row) { suppression(row); });
  for (auto [name, json] : p_.extras)
    extra(p_.strings[name], p_.strings[json]);
  out_ += "\n}\n";
  return std::move(out_);
}

// One line for the header and for each record; all tables are in the header.
std::string JsonPrinter::print_stream() {
  stream_ = true;
  header();
  table("suppress", p_.suppressions, [&](const Suppression &row) { suppression(row); });
  for (auto [name, json] : p_.extras)
    extra(p_.strings[name], p_.strings[json]);
  out_ += "}\n";
  for (uint32_t i : insts_of(p_.main)) {
    op(InstId{i}, ContextId{0});
    out_ += '\n';
  }
  out_ += fmt::format("{{\"end\": {{\"op_count\": {}", p_.main.size());
  if (!p_.outputs.empty()) {
    out_ += ", \"outputs\": [";
    for (const Output &row : p_.outputs) {
      separate();
      output(row);
    }
    out_ += ']';
  }
  out_ += "}}\n";
  return std::move(out_);
}

// Everything that stands before the ops.
void JsonPrinter::header() {
  number_all();
  value_meshes_.resize(p_.values.size());
  out_ = "{";
  facts();
  table(
      "symbols", p_.symbols, [&](const SymbolInfo &row) { symbol(row); }, '{');
  table("meshes", p_.meshes, [&](const Mesh &row) { mesh(row); });
  table(
      "groups", p_.groups, [&](const Group &row) { group(row); }, '{');
  table("files", files_.ids(), [&](FileId id) { file(id); });
  table("locs", frames_.ids(), [&](FrameId id) { frame(id); });
  table("scopes", scopes_.ids(), [&](StringId id) { text(p_.strings[id]); });
  Context first{.mesh = MeshId{0}, .local = {}};
  bool stated = llvm::any_of(p_.functions, [](const Function &f) { return f.context.valid(); });
  bool plain = !stated && contexts_.ids().size() == 1 && full(ContextId{0}) == first;
  table("contexts", plain ? llvm::ArrayRef<ContextId>() : contexts_.ids(),
        [&](ContextId id) { context(full(id)); });
  table(
      "rules", p_.rules, [&](const UserRule &row) { rule(row); }, '{');
  table(
      "functions", functions_, [&](FunctionId id) { function(p_.functions[id]); }, '{');
  table("params", p_.params, [&](const Param &row) { param(row); });
}

// A context with its mesh, which none means the first of.
Context JsonPrinter::full(ContextId id) const {
  Context context = p_.contexts[id];
  context.mesh = mesh_of(id);
  return context;
}

// The text comes from a JSON document, or from whoever wrote a string into a text program.
void JsonPrinter::extra(llvm::StringRef name, llvm::StringRef json) {
  JsonCursor cursor(json);
  cursor.skip();
  top(name);
  if (cursor.failed() || !cursor.at_end())
    return text(json);
  size_t begin = out_.size();
  out_ += json;
  if (stream_) // between tokens: strings hold no line feed
    std::replace(out_.begin() + static_cast<ptrdiff_t>(begin), out_.end(), '\n', ' ');
}

void JsonPrinter::facts() {
  top("format");
  out_ += "\"spmd-trace\"";
  top("version");
  out_ += fmt::format("\"1.{}\"", p_.minor_version);
  if (p_.producer.stated)
    producer();
  auto word = [&](std::string_view name, llvm::StringRef value) {
    top(name);
    text(value);
  };
  if (p_.dialect.valid())
    word("dialect", p_.strings[p_.dialect]);
  if (p_.mode != Mode::Global)
    word("mode", kModeWords[unsigned(p_.mode)]);
  if (p_.phase != ProgramPhase::Forward)
    word("phase", kProgramPhaseWords[unsigned(p_.phase)]);
  if (p_.missing)
    missing();
  const std::pair<std::string_view, std::optional<int64_t>> numbers[] = {
      {"world", p_.world}, {"rank", p_.rank}, {"op_count", p_.op_count}};
  for (auto [name, number] : numbers)
    if (number) {
      top(name);
      out_ += std::to_string(*number);
    }
}

void JsonPrinter::producer() {
  top("producer");
  out_ += '{';
  text("name", p_.producer.name);
  text("version", p_.producer.version);
  text("framework", p_.producer.framework);
  text("frontend", p_.producer.frontend);
  out_ += '}';
}

void JsonPrinter::missing() {
  top("missing");
  out_ += '[';
  for (size_t i = 0; i < kMissingWords.size(); ++i)
    if (p_.lacks(Missing(i))) {
      separate();
      text(kMissingWords[i]);
    }
  out_ += ']';
}

void JsonPrinter::symbol(const SymbolInfo &symbol) {
  text(p_.strings[symbol.name]);
  out_ += ": {";
  const std::pair<std::string_view, std::optional<int64_t>> facts[] = {
      {"min", symbol.min},
      {"max", symbol.max},
      {"multiple_of", symbol.multiple_of},
      {"hint", symbol.hint}};
  for (auto [name, fact] : facts)
    if (fact)
      number(name, *fact);
  out_ += '}';
}

void JsonPrinter::mesh(const Mesh &mesh) {
  out_ += '{';
  text("id", mesh.name);
  key("axes");
  out_ += '[';
  for (const Axis &each : mesh.axes) {
    separate();
    axis(mesh, each);
  }
  out_ += ']';
  if (mesh.explicit_offset)
    number("offset", mesh.offset);
  if (mesh.within) {
    key("within");
    out_ += '{';
    text("mesh", p_.meshes[mesh.within->parent].name);
    if (!mesh.within->at.empty()) {
      key("at");
      out_ += '{';
      for (auto [at, coordinate] : mesh.within->at)
        number(p_.strings[p_.meshes[mesh.within->parent][at].name], coordinate);
      out_ += '}';
    }
    out_ += '}';
  }
  out_ += '}';
}

// True if the axis is that of the parent mesh, unchanged.
bool JsonPrinter::is_parents(const Mesh &mesh, const Axis &axis) const {
  if (!mesh.within || (axis.flattened && !axis.explicit_layout))
    return false;
  const Mesh &parent = p_.meshes[mesh.within->parent];
  std::optional<AxisId> found = parent.find(axis.name);
  return found && parent[*found].layout == axis.layout && parent[*found].policy == axis.policy &&
         parent[*found].role == axis.role;
}

void JsonPrinter::axis(const Mesh &mesh, const Axis &axis) {
  if (is_parents(mesh, axis))
    return text(p_.strings[axis.name]);
  out_ += '{';
  text("name", axis.name);
  if (axis.explicit_layout) {
    key("layout");
    layout(axis.layout);
  } else if (axis.flattened) {
    key("of");
    axis_names(mesh, axis.pieces);
  } else {
    key("size");
    ranks(axis.layout.empty() ? 1 : axis.layout.front().size);
    if (axis.explicit_stride) {
      key("stride");
      ranks(axis.layout.front().stride);
    }
  }
  if (axis.policy != Policy::Unstated) {
    key("policy");
    text(axis.policy == Policy::Local ? "local" : "global");
  }
  text("role", axis.role);
  out_ += '}';
}

// A number, or an expression in quotes.
void JsonPrinter::ranks(int64_t ranks) {
  if (is_symbolic(p_, ranks))
    text(print_ranks(p_, ranks));
  else
    out_ += std::to_string(ranks);
}

void JsonPrinter::layout(llvm::ArrayRef<Atom> layout) {
  out_ += '[';
  for (Atom atom : layout) {
    separate();
    out_ += '[';
    ranks(atom.size);
    out_ += ", ";
    ranks(atom.stride);
    out_ += ']';
  }
  out_ += ']';
}

void JsonPrinter::axis_names(const Mesh &mesh, llvm::ArrayRef<AxisId> axes) {
  out_ += '[';
  for (AxisId axis : axes) {
    separate();
    text(p_.strings[mesh[axis].name]);
  }
  out_ += ']';
}

void JsonPrinter::group(const Group &group) {
  text(p_.strings[group.key]);
  out_ += ": {";
  if (group.form == Group::Form::Axes) {
    text("mesh", p_.meshes[group.mesh].name);
    key("axes");
    axis_names(p_.meshes[group.mesh], group.axes);
  } else if (group.form == Group::Form::Layout) {
    key("layout");
    layout(group.layout);
    if (group.offset != 0)
      number("offset", group.offset);
  } else {
    key("ranks");
    out_ += fmt::format("[{}]", fmt::join(group.ranks, ", "));
  }
  out_ += '}';
}

void JsonPrinter::file(FileId id) {
  const SourceFile &file = p_.files[id];
  if (!file.sha256.valid())
    return text(p_.strings[file.path]);
  out_ += '{';
  text("path", file.path);
  text("sha256", file.sha256);
  out_ += '}';
}

void JsonPrinter::frame(FrameId id) {
  const Frame &frame = p_.frames[id];
  out_ += '{';
  number("file", files_[frame.file]);
  number("line", frame.line);
  if (frame.col != 0)
    number("col", frame.col);
  if (frame.end_line != 0) {
    key("end");
    out_ += fmt::format("[{}, {}]", frame.end_line, frame.end_col);
  }
  text("func", frame.function);
  if (frame.caller.valid())
    number("caller", frames_[frame.caller]);
  out_ += '}';
}

void JsonPrinter::context(const Context &context) {
  out_ += '{';
  text("mesh", p_.meshes[context.mesh].name);
  if (context.local) {
    key("local");
    llvm::SmallVector<AxisId, 8> axes;
    for (AxisId axis : context.local)
      axes.push_back(axis);
    axis_names(p_.meshes[context.mesh], axes);
  }
  if (!context.check)
    flag("check", false);
  if (!context.grad)
    flag("grad", false);
  if (context.implicit)
    flag("implicit", true);
  out_ += '}';
}

void JsonPrinter::rule(const UserRule &rule) {
  text(p_.strings[rule.op]);
  out_ += ": ";
  if (rule.equation.valid())
    return text(p_.strings[rule.equation]);
  out_ += '{';
  text("like", rule.like);
  out_ += '}';
}

void JsonPrinter::suppression(const Suppression &entry) {
  out_ += '{';
  text("ignore", entry.finding);
  text("scope", entry.scope);
  if (entry.loc.valid())
    number("loc", frames_[entry.loc]);
  text("reason", entry.reason);
  text("until", entry.until);
  out_ += '}';
}

std::string print_json(const Program &program) { return JsonPrinter(program).print(); }
std::string print_jsonl(const Program &program) { return JsonPrinter(program).print_stream(); }

} // namespace spmd::ir
