// Words of the text.
#include "ir/text/print/words.h"

#include "ir/dialect/print_type.h"
#include "ir/text/lexer.h"

#include <fmt/core.h>

#include <cmath>

namespace spmd::ir {

std::string joined(llvm::ArrayRef<std::string> parts, std::string_view separator) {
  std::string out;
  for (const std::string &part : parts) {
    out += out.empty() ? "" : separator;
    out += part;
  }
  return out;
}

std::string print_number(double number) {
  if (std::isnan(number))
    return "nan";
  std::string text = fmt::format("{}", number);
  bool integer = std::isfinite(number) && text.find_first_of(".e") == std::string::npos;
  return integer ? text + ".0" : text;
}

std::string TextWords::quoted(StringId id) const { return quote(program_.strings[id]); }

std::string TextWords::name(llvm::StringRef text) const {
  return is_name(text) && !is_reserved(text) ? text.str() : quote(text);
}

std::string TextWords::function_name(const Function &function) const {
  return "@" + name(program_.strings[function.name].drop_front());
}

std::string TextWords::op_name(llvm::StringRef name) const {
  llvm::SmallVector<llvm::StringRef, 4> parts;
  name.split(parts, '.');
  bool plain = llvm::all_of(parts, [](llvm::StringRef part) { return is_name(part); });
  return plain && !is_keyword(parts.front()) ? name.str() : quote(name);
}

std::string TextWords::key(llvm::StringRef key) const {
  return is_name(key) && !is_op_key(key) ? key.str() : quote(key);
}

std::string TextWords::finding(StringId id) const {
  llvm::SmallVector<llvm::StringRef, 4> parts;
  program_.strings[id].split(parts, '-');
  bool plain = llvm::all_of(parts, [](llvm::StringRef part) { return is_name(part); });
  return plain ? program_.strings[id].str() : quoted(id);
}

std::string TextWords::axes(const AxisRefs &refs) const {
  llvm::SmallVector<std::string, 4> parts;
  for (AxisRef ref : refs.refs)
    parts.push_back((ref.mesh.valid() ? name(ref.mesh) + "." : "") + name(ref.axis));
  return parts.size() == 1 ? parts[0] : "(" + joined(parts) + ")";
}

std::string TextWords::axes(MeshId mesh, AxisSet set) const {
  std::string list = print_axes(program_, mesh, set);
  return set.size() == 1 ? list : "(" + list + ")";
}

std::string TextWords::where(LocId id) const {
  if (!id.valid())
    return "";
  const Location &loc = program_.locs[id];
  std::string text = loc.frame.valid() ? " at " + frames(loc.frame) : "";
  return loc.scope.valid() ? text + " in " + quoted(loc.scope) : text;
}

std::string TextWords::frames(FrameId id) const {
  std::string text;
  for (; id.valid(); id = program_.frames[id].caller) {
    const Frame &frame = program_.frames[id];
    text += text.empty() ? "" : " from ";
    text += fmt::format("{}:{}", quoted(program_.files[frame.file].path), frame.line);
    if (frame.col)
      text += fmt::format(":{}", frame.col);
    if (frame.end_line)
      text += fmt::format("-{}:{}", frame.end_line, frame.end_col);
    if (frame.function.valid())
      text += " fn " + quoted(frame.function);
  }
  return text;
}

} // namespace spmd::ir
