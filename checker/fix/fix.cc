// Candidates come from the transition table and from the finding's own arguments; what survives a
// re-check of everything that depends on the edit is offered. Prices: ring algorithms (checker/README.md,
// section 4).
#include "checker/fix/fix.h"

#include "checker/fix/redistribute.h"
#include "checker/report/provenance.h"
#include "checker/walk/walk.h"

#include "ir/mesh/axis_scale.h"
#include "ir/mesh/symbols.h"
#include "ir/text/text.h"
#include "rules/boundary/name.h"
#include "rules/transitions/transition.h"
#include "rules/violations/claims.h"
#include "rules/violations/gradients.h"
#include "rules/violations/local.h"
#include "rules/violations/meshes.h"
#include "rules/violations/shards.h"
#include "rules/violations/transitions.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::KindWord;
using ir::ValueId;
using rules::Transition;
using rules::Wire;

namespace {

std::string_view view(llvm::StringRef text) { return {text.data(), text.size()}; }

// Bytes that one rank sends around a ring of n, for b bytes of the larger side.
int64_t price(Wire wire, int64_t bytes, int64_t ranks) {
  switch (wire) {
  case Wire::None:
    return 0;
  case Wire::AllReduce:
    return 2 * bytes / ranks * (ranks - 1);
  case Wire::AllGather:
  case Wire::ReduceScatter:
  case Wire::AllToAll:
  case Wire::Broadcast:
  case Wire::Permute:
    return bytes / ranks * (ranks - 1);
  }
  return 0;
}

bool keeps_value(const Transition &row) {
  bool same_ends = row.dst != Kind::Varying && row.dst != Kind::Partial && row.src != Kind::Varying;
  return row.name != "reinterpret" || same_ends;
}

} // namespace

struct FixFinder::State {
  ir::Program &program;
  CheckResult scratch;
  Walk walk;
  const CheckResult &original;
  MoveFinder moves; // from what is known in `scratch`
  bool tried = false, cut = false, gradients_read = false;
  llvm::DenseMap<uint32_t, llvm::SmallVector<ValueId, 1>> gradients;

  State(ir::Program &program, const CheckResult &result, const CheckOptions &options)
      : program(program), scratch(result), walk(program, options, scratch), original(result),
        moves(program, scratch, options) {
    walk.resume();
  }

  // Values that the program calls gradients of this one.
  llvm::ArrayRef<ValueId> gradients_of(ValueId value) {
    if (!std::exchange(gradients_read, true))
      for (uint32_t i = 0; i < program.values.size(); ++i)
        if (ValueId of = program.values[ValueId{i}].grad_of; of.valid())
          gradients[of.index].push_back(ValueId{i});
    auto at = gradients.find(value.index);
    return at == gradients.end() ? llvm::ArrayRef<ValueId>() : at->second;
  }

  rules::Arg known(ValueId value) const {
    return {scratch.types[value.index], scratch.shapes[value.index], scratch.sizes[value.index]};
  }
  // A body is looked at as one call types it.
  void look_at(const Typing &typing) {
    for (uint32_t i = 0; i < typing.values.size(); ++i) {
      scratch.types[typing.first + i] = typing.values[i].type;
      scratch.shapes[typing.first + i] = typing.values[i].shape;
      scratch.sizes[typing.first + i] = typing.values[i].sizes;
    }
  }
  // The typings of the body that holds an instruction; the main body has none.
  llvm::SmallVector<const Typing *, 4> typings_of(ir::InstId id);

  ir::OpNameId op(std::string_view name) {
    return ir::OpNameId{program.strings.add(llvm::StringRef(name.data(), name.size())).index};
  }
  ir::StringId string(llvm::StringRef text) { return program.strings.add(text); }

  ir::AttrValue axes_value(const ir::Mesh &mesh, AxisSet axes) {
    ir::AxisRefs refs;
    for (AxisId axis : axes)
      refs.refs.push_back({{}, mesh[axis].name});
    return ir::AttrValue::axes(program.axis_refs.add(std::move(refs)));
  }
  ir::AttrsId with(ir::AttrsId attrs, llvm::StringRef key, std::optional<ir::AttrValue> value) {
    ir::AttrDict dict = attrs.valid() ? program.attrs[attrs] : ir::AttrDict();
    ir::StringId id = string(key);
    llvm::erase_if(dict.attrs, [&](const ir::Attr &attr) { return attr.key == id; });
    if (value)
      dict.attrs.push_back({id, *value});
    ir::sort_canonically(dict, program.strings);
    return program.attrs.add(std::move(dict));
  }
};

namespace {

// The search for one finding.
class Search {
public:
  Search(ir::Program &program, const CheckResult &original, Walk &walk, const Finding &finding)
      : program_(program), original_(original), walk_(walk), finding_(finding),
        id_(finding.place.as_inst()), inst_(program.insts[id_]),
        axes_(rules::axes_of(finding.violation)) {}

  // True if the edit removes the finding and no new one appears at or after it.
  bool repairs(const Edit &edit) const {
    std::optional<std::vector<Finding>> after = walk_.retype(edit);
    if (!after)
      return false;
    for (const Finding &found : *after) {
      bool target = found.place == finding_.place && found.violation.is_like(finding_.violation) &&
                    (axes_.empty() || (rules::axes_of(found.violation) & axes_));
      if (target || !known(found))
        return false;
    }
    return true;
  }

  llvm::SmallVector<uint32_t, 4> operands() const {
    llvm::SmallVector<uint32_t, 4> named;
    rules::for_each_field(finding_.violation, [&](std::string_view, const rules::Field &field) {
      if (const auto *operand = std::get_if<rules::OperandIndex>(&field))
        named.push_back(operand->index);
      else if (const auto *addend = std::get_if<rules::Addend>(&field);
               addend && addend->form == rules::Addend::Form::Operand)
        named.push_back(addend->operand.index);
    });
    if (named.empty() || finding_.violation.is<rules::MutationChangesType>())
      for (uint32_t i = 0; i < tensors_.size(); ++i)
        if (!llvm::is_contained(named, i))
          named.push_back(i);
    if (finding_.violation.is<rules::PartialState>())
      llvm::erase_value(named, 0); // what is written to: a copy of it would be updated instead
    return named;
  }

  ir::Program &program_;
  const CheckResult &original_;
  Walk &walk_;
  const Finding &finding_;
  ir::InstId id_;
  ir::Inst inst_;
  AxisSet axes_;
  llvm::SmallVector<ValueId, 4> tensors_ = tensors_of(program_, id_);

private:
  // The next layer's copy of this finding was silent as long as this one stood: it would be folded
  // into it.
  bool same_mistake(const Finding &found) const {
    if (found.violation.is<rules::UnreducedGradient>())
      return found.violation == finding_.violation; // told once
    return found.place.form == Place::Form::Inst && found.violation == finding_.violation &&
           program_.insts[found.place.as_inst()].op == inst_.op;
  }
  bool known(const Finding &found) const {
    if (found.severity() == rules::Severity::Info || same_mistake(found))
      return true;
    return llvm::any_of(original_.findings, [&](const Finding &old) {
      return old.place == found.place && old.violation.is_like(found.violation) &&
             rules::axes_of(old.violation).contains(rules::axes_of(found.violation));
    });
  }
};

std::string axes_text(const ir::Program &program, ir::MeshId mesh, AxisSet axes) {
  std::string names = ir::print_axes(program, mesh, axes);
  return axes.size() > 1 ? "(" + names + ")" : names;
}

int64_t rank_count(const ir::Mesh &mesh, AxisSet axes) {
  int64_t count = 1;
  for (AxisId axis : axes)
    count *= mesh[axis].size();
  return count;
}

} // namespace

FixFinder::FixFinder(ir::Program &program, const CheckResult &result, const CheckOptions &options)
    : state_(std::make_unique<State>(program, result, options)) {}
FixFinder::~FixFinder() = default;

namespace {

// Tries every repair of one finding and keeps what holds.
template <class State> class Candidates {
public:
  Candidates(State &state, Search &search)
      : state_(state), program_(state.program), search_(search) {}

  llvm::SmallVector<Fix, kMaxFixes> run() {
    // Each is held against all that depends on it, so a wide op has only so many of its operands tried.
    constexpr size_t kMostOperands = 64;
    llvm::SmallVector<uint32_t, 4> operands = search_.operands();
    state_.cut |= operands.size() > kMostOperands;
    operands.resize(std::min(operands.size(), kMostOperands));
    for (uint32_t operand : operands)
      if (operand < search_.tensors_.size())
        on_operand(operand);
    redistributed();
    innermost();
    fork_generator();
    rescale();
    attributes();
    if (const auto *wrong = search_.finding_.violation.as<rules::GradientTypeMismatch>())
      on_gradient(*wrong);
    if (search_.finding_.violation.is<rules::UnreducedGradient>())
      for (uint32_t operand = 0; operand < search_.tensors_.size() && operand < kMostOperands;
           ++operand)
        sum_operand(operand);
    llvm::stable_sort(found_, [](const Fix &a, const Fix &b) {
      auto key = [](const Fix &fix) {
        return std::tuple(fix.changes_value, fix.changes_shape,
                          fix.form != Fix::Form::Transition ? 0 : 1,
                          fix.forward_bytes.value_or(0) + fix.backward_bytes.value_or(0));
      };
      return key(a) < key(b);
    });
    if (found_.size() > kMaxFixes)
      found_.resize(kMaxFixes);
    return std::move(found_);
  }

private:
  const ir::Mesh &mesh() const { return program_.meshes[mesh_id()]; }
  ir::MeshId mesh_id() const { return program_.contexts[search_.inst_.context].mesh; }

  // A gradient of another kind than its value asks for goes through one transition more.
  void on_gradient(const rules::GradientTypeMismatch &wrong) {
    const ir::Inst &inst = search_.inst_;
    ValueId made;
    for (uint32_t r = 0; r < inst.result_count && !made.valid(); ++r)
      if (program_.values[inst.result(r)].grad_of == wrong.value)
        made = inst.result(r);
    AxisId axis = wrong.axes.first();
    // Copies: edits make types.
    const ir::Type from = program_.types[wrong.found], to = program_.types[wrong.needed];
    std::optional<Kind> src = from.kind(axis), dst = to.kind(axis);
    if (!made.valid() || !src || !dst || !from.of(*src).contains(wrong.axes) ||
        !to.of(*dst).contains(wrong.axes))
      return;
    auto word = [&](const ir::Type &type, Kind kind) {
      std::optional<unsigned> dim = type.dim(axis);
      return dim ? KindWord{.form = KindWord::Form::Shard,
                            .kind = kind,
                            .dim = static_cast<int8_t>(*dim)}
                 : KindWord{.kind = kind};
    };
    for (const Transition &row : rules::transitions())
      if (row.fixes && row.src == *src && row.dst == *dst)
        after(row.name, row.wire, word(from, *src), word(to, *dst), made, !keeps_value(row));
    // What varies may be addends that nobody has called so.
    if (src == Kind::Varying && (dst == Kind::Invariant || dst == Kind::Replicate))
      after("all_reduce", Wire::AllReduce, std::nullopt, {.kind = *dst}, made, true);
  }

  void after(std::string_view name, Wire wire, std::optional<KindWord> src, KindWord dst,
             ValueId made, bool changes) {
    Edit edit{.inst = search_.id_};
    edit.gradients.push_back(made);
    edit.dual_op = state_.op(name);
    edit.dual_attrs = words(src, dst);
    state_.tried = true;
    if (!search_.repairs(edit))
      return;
    Fix fix;
    fix.form = Fix::Form::Result;
    fix.inst = search_.id_;
    fix.changes_value = changes;
    std::string value = ir::print_value(program_, made);
    std::string axes = axes_text(program_, mesh_id(), search_.axes_);
    std::string from = src ? ir::print(*src) : "", to = ir::print(dst);
    fix.text =
        fmt::format("{}({}, {}{}, dst={})", name, value, axes, src ? ", src=" + from : "", to);
    fix.replacement = fmt::format("{}.fixed = {} {} {{ axis = {}{}, dst = {} }}", value, name,
                                  value, axes, src ? ", src = " + from : "", to);
    if (ir::ShapeId shape = state_.known(made).shape; shape.valid())
      if (std::optional<int64_t> bytes = ir::byte_count(program_.shapes[shape]);
          bytes && !symbolic())
        fix.forward_bytes = fix.backward_bytes =
            price(wire, *bytes, rank_count(mesh(), search_.axes_));
    found_.push_back(std::move(fix));
  }

  // Addends that nobody has called so, on their way into the optimizer.
  void sum_operand(uint32_t operand) {
    ValueId value = search_.tensors_[operand];
    if (kind_of(operand) != Kind::Varying ||
        llvm::is_contained(llvm::makeArrayRef(search_.tensors_).take_front(operand), value))
      return;
    KindWord dst{.kind = Kind::Replicate};
    rules::Arg before = state_.known(value);
    ir::AttrsId attrs = words(std::nullopt, dst);
    std::optional<rules::Arg> after =
        search_.walk_.transition(state_.op("all_reduce"), attrs, search_.inst_.context, before);
    if (!after)
      return;
    Edit edit{.inst = search_.id_, .mover = state_.op("all_reduce"), .mover_attrs = attrs};
    for (uint32_t each = 0; each < search_.tensors_.size(); ++each)
      if (search_.tensors_[each] == value)
        edit.operands.push_back({each, *after});
    state_.tried = true;
    if (!search_.repairs(edit))
      return;
    Fix fix;
    fix.inst = search_.id_;
    fix.operands.push_back(operand);
    fix.changes_value = true;
    fix.steps.push_back({value, "all_reduce", attrs, before, *after});
    add_price(fix, *rules::find_transition("all_reduce", Kind::Partial, Kind::Replicate), before,
              *after);
    std::string name = ir::print_value(program_, value);
    std::string axes = axes_text(program_, mesh_id(), search_.axes_);
    fix.text = fmt::format("all_reduce({}, {}, dst=R)", name, axes);
    fix.replacement =
        fmt::format("{}.fixed = all_reduce {} {{ axis = {}, dst = R }}", name, name, axes);
    found_.push_back(std::move(fix));
  }

  void on_operand(uint32_t operand) {
    std::optional<Kind> kind = kind_of(operand);
    if (!kind)
      return;
    llvm::SmallVector<uint32_t, 1> operands{operand};
    if (*kind == Kind::Invariant && search_.finding_.violation.is<rules::InvariantMixed>()) {
      // A value among addends of a later sum would still be added once per rank, silently.
      if (sum_ahead(program_, search_.id_, search_.axes_).valid())
        return;
      operands = all_invariant();
    }
    for (const Transition &row : rules::transitions())
      if (row.fixes && row.src == *kind)
        with_layouts(row, operands);
  }

  // Operands that are cut differently are brought together, in whatever steps that takes.
  void redistributed() {
    const rules::Violation &violation = search_.finding_.violation;
    if (!violation.is<rules::SpecMismatch>() && !violation.is<rules::ShardOrderUnknown>() &&
        !violation.is<rules::AxisUsedTwice>())
      return;
    offer(state_.moves.find(search_.id_));
  }
  // Only the innermost axis of a dimension can be worked on: it is made that first.
  void innermost() {
    if (const auto *wrong = search_.finding_.violation.as<rules::NotInnermost>())
      offer(state_.moves.innermost(search_.id_, wrong->operand.index, wrong->axes));
  }
  void offer(const std::optional<Move> &move) {
    state_.cut |= state_.moves.cut();
    if (!move)
      return;
    for (const Fix &fix : found_) // one step does the same
      if (fix.steps.size() == 1 && fix.steps[0].value == move->value &&
          fix.steps[0].after == move->to)
        return;
    Edit edit{.inst = search_.id_,
              .attrs = move->attrs,
              .mover = state_.op("redistribute"),
              .mover_attrs = move->said};
    for (uint32_t operand : move->operands)
      edit.operands.push_back({operand, move->to});
    state_.tried = true;
    if (!search_.repairs(edit))
      return;
    Fix fix;
    fix.inst = search_.id_;
    fix.operands.assign(move->operands.begin(), move->operands.end());
    fix.changes_shape = move->to.shape != move->from.shape;
    if (!symbolic()) {
      fix.forward_bytes = static_cast<int64_t>(move->forward_bytes);
      fix.backward_bytes = static_cast<int64_t>(move->backward_bytes);
    }
    fix.steps.push_back({move->value, "redistribute", move->said, move->from, move->to});
    std::string name = ir::print_value(program_, move->value);
    fix.text = fmt::format("redistribute({}, {})", name, move->words);
    fix.replacement =
        fmt::format("{}.fixed = redistribute {} {{ {} }}", name, name, move->attributes);
    found_.push_back(std::move(fix));
  }

  // Ranks that hold different data draw from states of their own.
  void fork_generator() {
    const ir::Body &main = program_.main; // in a body the state is typed for each call anew
    if (!search_.finding_.violation.is<rules::ShardedRandomRepeats>() ||
        search_.id_.index < main.first.index || search_.id_.index >= main.last.index)
      return;
    for (uint32_t operand = 0; operand < search_.tensors_.size(); ++operand) {
      ValueId state = search_.tensors_[operand];
      ir::InstId made = defining_inst(program_, state);
      rules::Boundary op = made.valid() ? rules::boundary_of(program_, program_.insts[made].op)
                                        : rules::Boundary::None;
      if ((op != rules::Boundary::Rng && op != rules::Boundary::Fork) ||
          kind_of(operand) != Kind::Replicate)
        continue;
      rules::Arg forked = state_.known(state);
      ir::Type type = program_.types[forked.type];
      type.set_kind(search_.axes_, Kind::Varying);
      forked.type = program_.types.add(type);
      Edit edit{.inst = search_.id_};
      edit.operands.push_back({operand, forked});
      state_.tried = true;
      if (!search_.repairs(edit))
        continue;
      Fix fix;
      fix.inst = search_.id_;
      fix.operands.push_back(operand);
      fix.forward_bytes = fix.backward_bytes = 0;
      std::string name = ir::print_value(program_, state);
      std::string axes = axes_text(program_, mesh_id(), search_.axes_);
      fix.text = fmt::format("fork({}, {})", name, axes);
      fix.replacement = fmt::format("{}.fixed = fork {} {{ axis = {} }}", name, name, axes);
      found_.push_back(std::move(fix));
    }
  }

  // Divides what carries a factor too many by it.
  void rescale() {
    const auto *wrong = search_.finding_.violation.as<rules::ScaleMismatch>();
    if (!wrong || !wrong->what.empty() || wrong->operand.index >= search_.tensors_.size())
      return;
    std::optional<ir::Scale> left = ir::parse_scale(wrong->left, program_.strings);
    std::optional<ir::Scale> by = left ? ir::inverse(*left) : std::nullopt;
    ValueId value = search_.tensors_[wrong->operand.index];
    ir::Type type = program_.types[state_.known(value).type];
    if (!by || type.mesh() != mesh_id())
      return;
    std::string text = ir::print(*by, program_.strings), name = ir::print_value(program_, value);
    ir::ScaleId factor = program_.scales.add(std::move(*by));
    type.scale =
        ir::product(program_, type.scale, ir::canonical_scale(program_, factor, mesh_id()));
    Edit edit{.inst = search_.id_,
              .attrs = {},
              .mover = state_.op("scale"),
              .mover_attrs = state_.with({}, "by", ir::AttrValue::scale(factor))};
    edit.operands.push_back(
        {wrong->operand.index,
         {program_.types.add(type), state_.known(value).shape, state_.known(value).sizes}});
    state_.tried = true;
    if (!search_.repairs(edit))
      return;
    Fix fix;
    fix.inst = search_.id_;
    fix.operands = {wrong->operand.index};
    fix.text = fmt::format("scale({}, by = {})", name, text);
    fix.forward_bytes = fix.backward_bytes = 0;
    fix.replacement = fmt::format("{}.fixed = scale {} {{ by = {} }}", name, name, text);
    found_.push_back(std::move(fix));
  }

  // The kind of an operand on all axes of the finding; none if they differ.
  std::optional<Kind> kind_of(uint32_t operand) const {
    const ir::Type &type = program_.types[state_.known(search_.tensors_[operand]).type];
    if (type.mesh() != mesh_id() || search_.axes_.empty())
      return std::nullopt;
    std::optional<Kind> kind = type.kind(search_.axes_.first());
    return kind && type.of(*kind).contains(search_.axes_) ? kind : std::nullopt;
  }
  llvm::SmallVector<uint32_t, 1> all_invariant() const {
    llvm::SmallVector<uint32_t, 1> found;
    for (uint32_t i = 0; i < search_.tensors_.size(); ++i) {
      bool free = program_.types[state_.known(search_.tensors_[i]).type].gradient_free();
      if (!free && kind_of(i) == Kind::Invariant)
        found.push_back(i);
    }
    return found;
  }

  // V stands for a stack or for shards along a dimension; the first form that repairs is enough.
  void with_layouts(const Transition &row, llvm::ArrayRef<uint32_t> operands) {
    KindWord src{.kind = row.src}, dst{.kind = row.dst};
    if (row.layouts == rules::Layouts::Plain)
      return void(try_row(row, operands, src, dst));
    ValueId value = search_.tensors_[operands.front()];
    ir::ShapeId shape_id = state_.known(value).shape;
    unsigned rank =
        shape_id.valid() ? static_cast<unsigned>(program_.shapes[shape_id].dims.size()) : 0;
    for (unsigned dim : dims_to_try(rank)) {
      KindWord shard{
          .form = KindWord::Form::Shard, .kind = Kind::Varying, .dim = static_cast<int8_t>(dim)};
      KindWord &end = row.src == Kind::Varying ? src : dst;
      if (!sharded_here(row, value, dim))
        continue;
      end = shard;
      if (try_row(row, operands, src, dst) || with_sizes(row, operands, src, dst))
        return;
    }
  }

  // Sizes in attributes are those of one rank: of a view of the gathered whole, one of them grows.
  bool with_sizes(const Transition &row, llvm::ArrayRef<uint32_t> operands, KindWord src,
                  KindWord dst) {
    const rules::Violation &violation = search_.finding_.violation;
    bool cut = violation.is<rules::StridedShard>() || violation.is<rules::StridedUneven>();
    const ir::AttrValue *shape = program_.find(search_.inst_.attrs, "shape");
    if (!cut || !shape || shape->form != ir::AttrForm::List)
      return false;
    const ir::AttrList sizes = program_.lists[shape->as<ir::AttrListId>()];
    if (llvm::any_of(sizes.items, [](const ir::AttrValue &item) {
          return item.form != ir::AttrForm::Integer || item.as_integer() < 1;
        }))
      return false;
    for (size_t i = 0; i < sizes.items.size(); ++i) {
      ir::AttrList grown = sizes;
      int64_t size = 0;
      if (symbolic() || __builtin_mul_overflow(grown.items[i].as_integer(),
                                               rank_count(mesh(), search_.axes_), &size))
        continue;
      grown.items[i] = ir::AttrValue::integer(size);
      std::string text;
      for (const ir::AttrValue &item : grown.items)
        text += (text.empty() ? "" : ", ") + std::to_string(item.as_integer());
      ir::AttrsId attrs = state_.with(search_.inst_.attrs, "shape",
                                      ir::AttrValue::list(program_.lists.add(std::move(grown))));
      if (try_row(row, operands, src, dst, attrs, fmt::format(", then shape = [{}]", text)))
        return true;
    }
    return false;
  }

  // Where operands disagree, the other one's dimension is likelier than any.
  llvm::SmallVector<unsigned, 6> dims_to_try(unsigned rank) const {
    llvm::SmallVector<unsigned, 6> dims;
    if (const auto *clash = search_.finding_.violation.as<rules::SpecMismatch>();
        clash && static_cast<unsigned>(clash->other_dim) < rank)
      dims.push_back(static_cast<unsigned>(clash->other_dim));
    for (unsigned dim = 0; dim < rank; ++dim)
      if (!llvm::is_contained(dims, dim))
        dims.push_back(dim);
    return dims;
  }
  // Gathering is offered along the dimension that is sharded, or that the program says is: never along
  // a guess.
  bool sharded_here(const Transition &row, ValueId value, unsigned dim) const {
    if (row.src != Kind::Varying)
      return true;
    AxisId axis = search_.axes_.first();
    const ir::Type &found = program_.types[state_.known(value).type];
    ir::TypeId declared = program_.values[value].declared;
    return found.dim(axis) == dim ||
           (declared.valid() && program_.types[declared].dim(axis) == dim);
  }

  ir::AttrsId words(std::optional<KindWord> src, KindWord dst) {
    ir::AttrsId attrs = state_.with({}, "axis", state_.axes_value(mesh(), search_.axes_));
    if (src)
      attrs = state_.with(attrs, "src", ir::AttrValue::kind(*src));
    return state_.with(attrs, "dst", ir::AttrValue::kind(dst));
  }

  bool try_row(const Transition &row, llvm::ArrayRef<uint32_t> operands, KindWord src, KindWord dst,
               ir::AttrsId attrs = {}, llvm::StringRef then = "") {
    Edit edit{.inst = search_.id_,
              .attrs = attrs,
              .mover = state_.op(row.name),
              .mover_attrs = words(src, dst)};
    Fix fix;
    fix.inst = search_.id_;
    fix.operands.assign(operands.begin(), operands.end());
    fix.changes_value = !keeps_value(row);
    std::string names, axes = axes_text(program_, mesh_id(), search_.axes_);
    for (uint32_t operand : operands) {
      ValueId value = search_.tensors_[operand];
      rules::Arg before = state_.known(value);
      std::optional<rules::Arg> after = search_.walk_.transition(
          state_.op(row.name), words(src, dst), search_.inst_.context, before);
      if (!after)
        return false;
      edit.operands.push_back({operand, *after});
      fix.steps.push_back({value, std::string(row.name), words(src, dst), before, *after});
      fix.changes_shape |= after->shape != before.shape;
      add_backward(edit, row, value);
      add_price(fix, row, before, *after);
      std::string name = ir::print_value(program_, value);
      names += (names.empty() ? "" : " and ") + name;
      fix.replacement += fmt::format("{}{}.fixed = {} {} {{ axis = {}, src = {}, dst = {} }}",
                                     fix.replacement.empty() ? "" : "\n", name, row.name, name,
                                     axes, ir::print(src), ir::print(dst));
    }
    state_.tried = true;
    if (!search_.repairs(edit))
      return false;
    fix.remark = then.str();
    if (!edit.gradients.empty())
      fix.remark += fmt::format(", and {} of the gradient", row.dual.name);
    fix.text = fmt::format("{}({}, {}, src={}, dst={})", row.name, names, axes, ir::print(src),
                           ir::print(dst)) +
               fix.remark;
    found_.push_back(std::move(fix));
    return true;
  }

  // Where the program contains its backward, the dual belongs to the edit.
  void add_backward(Edit &edit, const Transition &row, ValueId value) {
    for (ValueId gradient : state_.gradients_of(value))
      edit.gradients.push_back(gradient);
    edit.dual_op = state_.op(row.dual.name);
    edit.dual_attrs = words(std::nullopt, KindWord{.kind = row.dual.dst});
  }

  // Sizes that are symbols give no price.
  bool symbolic() const { return ir::is_symbolic(program_, mesh()); }

  void add_price(Fix &fix, const Transition &row, const rules::Arg &before,
                 const rules::Arg &after) const {
    if (!before.shape.valid() || !after.shape.valid())
      return;
    std::optional<int64_t> a = ir::byte_count(program_.shapes[before.shape]);
    std::optional<int64_t> b = ir::byte_count(program_.shapes[after.shape]);
    if (!a || !b || symbolic())
      return;
    int64_t bytes = std::max(*a, *b), ranks = rank_count(mesh(), search_.axes_);
    fix.forward_bytes = fix.forward_bytes.value_or(0) + price(row.wire, bytes, ranks);
    const Transition *dual = rules::find_transition(row.dual.name, row.dual.src, row.dual.dst);
    bool gradient = !program_.types[before.type].gradient_free();
    fix.backward_bytes =
        fix.backward_bytes.value_or(0) + (dual && gradient ? price(dual->wire, bytes, ranks) : 0);
  }

  bool try_attrs(ir::AttrsId attrs, std::string text, bool changes_value) {
    state_.tried = true;
    if (!search_.repairs({.inst = search_.id_, .attrs = attrs}))
      return false;
    Fix fix;
    fix.form = Fix::Form::Attribute;
    fix.inst = search_.id_;
    fix.text = std::move(text);
    fix.changes_value = changes_value;
    found_.push_back(std::move(fix));
    return true;
  }

  void attributes() {
    ir::AttrsId attrs = search_.inst_.attrs;
    const rules::Violation &violation = search_.finding_.violation;
    if (const auto *wrong = violation.as<rules::WrongSource>())
      if (wrong->found.form == KindWord::Form::Plain)
        try_attrs(state_.with(attrs, "src", ir::AttrValue::kind(wrong->found)),
                  fmt::format("src = {}", ir::print(wrong->found)), true);
    if (violation.is<rules::NeedlessPartial>())
      drop_partial(attrs);
    if (violation.is<rules::UnstatedPartial>())
      state_partial(attrs);
    if (const auto *wrong = violation.as<rules::WrongDimension>())
      name_dimension(attrs, wrong->found);
    if (const auto *wrong = violation.as<rules::WrongAxis>())
      try_attrs(state_.with(attrs, "axis", state_.axes_value(mesh(), wrong->actual)),
                fmt::format("axis = {}", axes_text(program_, mesh_id(), wrong->actual)), true);
    if (violation.is<rules::ExpertTransition>())
      try_attrs(state_.with(attrs, "expert", ir::AttrValue::boolean(true)),
                "expert = true, if it is meant", false);
    if (violation.is<rules::MissingVjp>() && program_.find(attrs, "vjp"))
      try_attrs(state_.with(attrs, "vjp", std::nullopt),
                "drop `vjp = none`: call the form that has a backward", false);
    if (const auto *replicated = violation.as<rules::ReduceOfReplicated>())
      drop_inst(replicated->operand.index);
  }

  AxisSet stated_partial(ir::AttrsId attrs) const {
    AxisSet stated;
    if (const ir::AttrValue *partial = program_.find(attrs, "partial");
        partial && partial->form == ir::AttrForm::Axes)
      for (const ir::AxisRef &ref : program_.axis_refs[partial->as<ir::AxisRefsId>()].refs)
        if (std::optional<AxisId> axis = mesh().find(ref.axis))
          stated |= *axis;
    return stated;
  }
  void drop_partial(ir::AttrsId attrs) {
    AxisSet stated = stated_partial(attrs) - search_.axes_;
    std::optional<ir::AttrValue> rest;
    if (stated)
      rest = state_.axes_value(mesh(), stated);
    try_attrs(state_.with(attrs, "partial", rest),
              stated ? fmt::format("partial = {}", axes_text(program_, mesh_id(), stated))
                     : "drop `partial`",
              false);
  }
  void state_partial(ir::AttrsId attrs) {
    AxisSet stated = stated_partial(attrs) | search_.axes_;
    ir::AttrsId changed = state_.with(attrs, "partial", state_.axes_value(mesh(), stated));
    std::string text = fmt::format("partial = {}", axes_text(program_, mesh_id(), stated));
    if (!try_attrs(changed, text, false))
      state_and_reduce(changed, text);
  }

  // The sum is stated, and taken at once: some use needs it whole.
  void state_and_reduce(ir::AttrsId attrs, const std::string &stated) {
    if (search_.inst_.result_count != 1)
      return;
    ValueId made = search_.inst_.first_result;
    const rules::Arg known = state_.known(made);
    ir::Type type = program_.types[known.type];
    type.unknown -= search_.axes_;
    type.set_kind(search_.axes_, Kind::Partial);
    const rules::Arg partial{program_.types.add(type), known.shape, known.sizes};
    unsigned rank =
        known.shape.valid() ? static_cast<unsigned>(program_.shapes[known.shape].dims.size()) : 0;
    for (const Transition &row : rules::transitions()) {
      if (!row.fixes || row.src != Kind::Partial || row.wire == Wire::None)
        continue;
      if (row.layouts == rules::Layouts::Plain)
        reduce_made(row, {.kind = row.dst}, attrs, stated, partial);
      else
        for (int8_t dim = 0; dim < static_cast<int8_t>(rank); ++dim)
          if (reduce_made(row, {.form = KindWord::Form::Shard, .kind = Kind::Varying, .dim = dim},
                          attrs, stated, partial))
            break;
    }
  }
  bool reduce_made(const Transition &row, KindWord dst, ir::AttrsId attrs,
                   const std::string &stated, const rules::Arg &partial) {
    const KindWord src{.kind = Kind::Partial};
    ValueId made = search_.inst_.first_result;
    std::optional<rules::Arg> after = search_.walk_.transition(state_.op(row.name), words(src, dst),
                                                               search_.inst_.context, partial);
    if (!after)
      return false;
    Edit edit{.inst = search_.id_, .attrs = attrs};
    edit.gradients.push_back(made);
    edit.dual_op = state_.op(row.name);
    edit.dual_attrs = words(src, dst);
    if (!search_.repairs(edit))
      return false;
    Fix fix;
    fix.form = Fix::Form::Attribute;
    fix.inst = search_.id_;
    fix.changes_shape = after->shape != partial.shape;
    add_price(fix, row, partial, *after);
    std::string name = ir::print_value(program_, made);
    std::string axes = axes_text(program_, mesh_id(), search_.axes_);
    fix.text = fmt::format("{}, then {}({}, {}, src=P, dst={})", stated, row.name, name, axes,
                           ir::print(dst));
    fix.replacement = fmt::format("{}.fixed = {} {} {{ axis = {}, src = P, dst = {} }}", name,
                                  row.name, name, axes, ir::print(dst));
    found_.push_back(std::move(fix));
    return true;
  }
  void name_dimension(ir::AttrsId attrs, int64_t dim) {
    KindWord shard{
        .form = KindWord::Form::Shard, .kind = Kind::Varying, .dim = static_cast<int8_t>(dim)};
    try_attrs(state_.with(attrs, "src", ir::AttrValue::kind(shard)),
              fmt::format("src = {}", ir::print(shard)), true);
  }

  // A coalesced call goes on without the operand.
  void drop_inst(uint32_t operand) {
    const ir::Inst &inst = search_.inst_;
    bool alone = inst.result_count == 1;
    if (operand >= search_.tensors_.size() || operand >= inst.result_count)
      return;
    state_.tried = true;
    if (!search_.repairs({.inst = search_.id_, .drop = true, .member = operand}))
      return;
    Fix fix;
    fix.form = Fix::Form::Drop;
    fix.inst = search_.id_;
    const auto *copies = search_.finding_.violation.as<rules::ReduceOfReplicated>();
    fix.changes_value = !copies || copies->factor.count != 1;
    fix.forward_bytes = fix.backward_bytes = 0;
    std::string_view name = view(program_.op_name(inst.op));
    fix.text = alone ? fmt::format("drop `{}`", name)
                     : fmt::format("leave {} out of `{}`",
                                   ir::print_value(program_, search_.tensors_[operand]), name);
    found_.push_back(std::move(fix));
  }

  State &state_;
  ir::Program &program_;
  Search &search_;
  llvm::SmallVector<Fix, kMaxFixes> found_;
};

} // namespace

bool FixFinder::tried() const { return state_->tried; }
bool FixFinder::cut() const { return state_->cut; }

llvm::SmallVector<const Typing *, 4> FixFinder::State::typings_of(ir::InstId id) {
  for (const ir::Function &function : program.functions) {
    if (function.opaque || id.index < function.body.first.index ||
        id.index >= function.body.last.index)
      continue;
    uint32_t first = ~0u;
    for (const ir::FunctionParam &param : function.params)
      first = std::min(first, param.value.index);
    for (ir::InstId i = function.body.first; i.index < function.body.last.index; ++i.index)
      if (program.insts[i].result_count > 0)
        first = std::min(first, program.insts[i].first_result.index);
    llvm::SmallVector<const Typing *, 4> found;
    for (const Typing &each : original.typings)
      if (!each.values.empty() && each.first == first)
        found.push_back(&each);
    return found;
  }
  return {};
}

llvm::SmallVector<Fix, kMaxFixes> FixFinder::find(const Finding &finding) {
  state_->tried = state_->cut = false;
  if (finding.place.form != Place::Form::Inst)
    return {};
  auto candidates = [&] {
    Search search(state_->program, state_->original, state_->walk, finding);
    return Candidates<State>(*state_, search).run();
  };
  const ir::Body &main = state_->program.main;
  if (finding.place.index >= main.first.index && finding.place.index < main.last.index)
    return candidates();
  // Calls with other operands may type the body otherwise, and be right.
  constexpr size_t kTypingsTried = 4;
  llvm::SmallVector<const Typing *, 4> typings = state_->typings_of(finding.place.as_inst());
  for (const Typing *typing : llvm::makeArrayRef(typings).take_front(kTypingsTried)) {
    state_->look_at(*typing);
    if (llvm::SmallVector<Fix, kMaxFixes> found = candidates(); !found.empty())
      return found;
  }
  return {};
}

} // namespace spmd::checker
