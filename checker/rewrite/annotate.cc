// States the words of collectives with unstated words as attributes. A word that the attributes
// cannot say (two operands of one call that differ, addends that are varying) is left to be read
// off the operand.
#include "checker/rewrite/annotate.h"

#include "ir/text/text.h"
#include "rules/ops/registry.h"
#include "rules/transitions/transition.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::WrittenKind;

namespace {

// The axes of a call as it writes them, a flattened one as its pieces. Empty if they are
// not written as axes of the mesh of the call.
llvm::SmallVector<AxisSet, 2> written_axes(const ir::Program &program, const ir::Inst &inst) {
  const ir::Mesh &mesh = program.meshes[program.contexts[inst.context].mesh];
  llvm::SmallVector<AxisSet, 2> written;
  auto add = [&](AxisId axis) { written.push_back(mesh.pieces_of(axis) & mesh.typed_axes()); };
  if (const ir::AttrValue *axis = program.find(inst.attrs, "axis")) {
    if (axis->form != ir::AttrForm::Axes)
      return {};
    for (const ir::AxisRef &ref : program.axis_refs[axis->as<ir::AxisRefsId>()].refs) {
      std::optional<AxisId> found = mesh.find(ref.axis);
      if (!found || ref.mesh.valid())
        return {};
      add(*found);
    }
  }
  const ir::AttrValue *key = program.find(inst.attrs, "group");
  for (const ir::Group &group : program.groups)
    if (key && key->form == ir::AttrForm::String && group.key == key->as<ir::StringId>() &&
        group.form == ir::Group::Form::Axes && group.mesh == program.contexts[inst.context].mesh)
      for (AxisId axis : group.axes)
        add(axis);
  return written;
}

class Annotator {
public:
  Annotator(ir::Program &program, llvm::ArrayRef<InferredSrcDst> words)
      : program_(program), words_(words), inst_(program.insts[words[0].inst]),
        written_(written_axes(program, inst_)) {
    for (const InferredSrcDst &at : words)
      all_ |= at.word.axes;
    if (written_.empty())
      written_.push_back(all_);
  }

  ir::AttrsId run() {
    if (const ir::AttrValue *type = program_.find(attrs_, "type");
        type && type->form == ir::AttrForm::Claim) {
      decide(program_.claims[type->as<ir::ClaimId>()]);
      return attrs_;
    }
    state("src", [&](const InferredSrcDst &at) -> std::optional<WrittenKind> {
      if (read_as_addends(program_, at))
        return std::nullopt;
      return at.word.src;
    });
    state("dst", [](const InferredSrcDst &at) { return std::optional(at.word.dst); });
    return attrs_;
  }

private:
  // The one word on these axes; none if there is no one word.
  template <class Word> std::optional<WrittenKind> on(AxisSet axes, Word word_of) const {
    std::optional<WrittenKind> found;
    for (const InferredSrcDst &at : words_) {
      if (!(at.word.axes & axes))
        continue;
      std::optional<WrittenKind> word = word_of(at);
      if (!word || (found && *found != *word))
        return std::nullopt;
      found = word;
    }
    return found;
  }

  template <class Word> void state(llvm::StringRef key, Word word_of) {
    if (program_.find(attrs_, key))
      return;
    if (std::optional<WrittenKind> same = on(all_, word_of))
      return put(key, ir::AttrValue::kind(*same));
    ir::AttrList list;
    for (AxisSet axes : written_) {
      // An axis of one rank is whatever is written.
      std::optional<WrittenKind> word = on(axes ? axes : AxisSet(all_.first()), word_of);
      if (!word)
        return;
      list.items.push_back(ir::AttrValue::kind(*word));
    }
    put(key, ir::AttrValue::list(program_.lists.add(std::move(list))));
  }

  // What a whole type leaves open is decided in it.
  void decide(ir::Claim claim) {
    ir::Type type = program_.types[claim.type];
    for (const InferredSrcDst &at : words_)
      type.set_kind(at.word.axes, at.word.dst.kind);
    claim.type = program_.types.add(type);
    put("type", ir::AttrValue::claim(program_.claims.add(claim)));
  }

  void put(llvm::StringRef key, ir::AttrValue value) {
    ir::AttrDict dict = attrs_.valid() ? program_.attrs[attrs_] : ir::AttrDict();
    ir::StringId id = program_.strings.add(key);
    llvm::erase_if(dict.attrs, [&](const ir::Attr &attr) { return attr.key == id; });
    dict.attrs.push_back({id, value});
    ir::sort_canonically(dict, program_.strings);
    attrs_ = program_.attrs.add(std::move(dict));
  }

  ir::Program &program_;
  llvm::ArrayRef<InferredSrcDst> words_;
  const ir::Inst inst_;
  llvm::SmallVector<AxisSet, 2> written_;
  AxisSet all_;
  ir::AttrsId attrs_ = inst_.attrs;
};

} // namespace

bool read_as_addends(const ir::Program &program, const InferredSrcDst &at) {
  if (at.word.src.form != WrittenKind::Form::Plain || at.word.src.kind != ir::Kind::Varying)
    return false;
  rules::ResolvedOp op = rules::resolve_op(program, program.insts[at.inst].op);
  return op.form == rules::OpForm::Transition && rules::unstated_words(op.transition).reduces;
}

std::vector<Annotation> annotate(ir::Program &program, const CheckResult &result) {
  std::vector<Annotation> made;
  llvm::DenseMap<uint32_t, size_t> of_inst;
  for (const InferredSrcDst &at : result.inferred) {
    auto [slot, is_new] = of_inst.try_emplace(at.inst.index, made.size());
    if (is_new)
      made.push_back({at.inst, {}, {}, {}});
    made[slot->second].words.push_back(at);
  }
  for (Annotation &each : made) {
    each.attrs = Annotator(program, each.words).run();
    ir::Inst &inst = program.insts[each.inst];
    ir::AttrsId before = std::exchange(inst.attrs, each.attrs);
    each.line = ir::print_inst(program, each.inst);
    inst.attrs = before;
  }
  return made;
}

uint64_t undecided_dst_count(const CheckResult &result) {
  llvm::DenseMap<uint32_t, bool> counted;
  for (const InferredSrcDst &at : result.inferred)
    if (at.why == InferredSrcDst::Why::NoUse)
      counted[at.inst.index] = true;
  return counted.size();
}

} // namespace spmd::checker
