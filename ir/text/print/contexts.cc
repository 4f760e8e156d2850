// Contexts in the text.
#include "ir/text/print/contexts.h"

#include <fmt/core.h>

namespace spmd::ir {

Context context_of(const Program &program, ContextId id) {
  Context context;
  if (id.valid() && id.index < program.contexts.size())
    context = program.contexts[id];
  if (!context.mesh.valid())
    context.mesh = MeshId{0};
  return context;
}

Context top_context(const Program &program) {
  Context plain;
  plain.mesh = context_of(program, ContextId{0}).mesh;
  return plain;
}

// What changes from one context to the other; `only_local`: some axes become local and that is all.
static std::string context_words(const Program &program, const Context &from, const Context &to,
                                 bool &only_local) {
  const TextWords text(program);
  llvm::SmallVector<std::string, 4> words;
  bool same_mesh = from.mesh == to.mesh;
  if (!same_mesh)
    words.push_back("mesh = " + text.name(program.meshes[to.mesh].name));
  AxisSet before = same_mesh ? from.local : AxisSet();
  if (AxisSet added = to.local - before)
    words.push_back("local = " + text.axes(to.mesh, added));
  only_local = words.size() == 1 && same_mesh;
  if (AxisSet removed = before - to.local)
    words.push_back("global = " + text.axes(to.mesh, removed));
  auto flag = [&](std::string_view word, bool a, bool b) {
    if (a != b)
      words.push_back(fmt::format("{} = {}", word, b));
  };
  flag("check", from.check, to.check);
  flag("grad", from.grad, to.grad);
  flag("implicit", from.implicit, to.implicit);
  only_local &= words.size() == 1;
  return joined(words);
}

std::string open_context(const Program &program, const Context &from, const Context &to) {
  bool only_local = false;
  std::string words = context_words(program, from, to, only_local);
  std::string added = TextWords(program).axes(to.mesh, to.local - from.local);
  return only_local ? fmt::format("local {} {{", added) : fmt::format("with {{ {} }} {{", words);
}

std::string context_attrs(const Program &program, const Context &from, const Context &to) {
  bool only_local = false;
  std::string words = context_words(program, from, to, only_local);
  return words.empty() ? "{}" : "{ " + words + " }";
}

} // namespace spmd::ir
