// Candidates from the tables of rules, each typed with the operands at hand; what comes out
// otherwise than the instruction does is not taken.
#include "checker/dialect/printer.h"

#include "rules/factors/factors.h"
#include "rules/ops/registry.h"
#include "rules/ops/spellings.h"
#include "rules/transitions/call.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"
#include "ir/support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <utility>

namespace spmd::checker {

using ir::AttrValue;
using ir::AxisId;
using ir::AxisSet;
using ir::Dialect;
using ir::Kind;
using ir::WrittenKind;

namespace {

llvm::StringRef ref(std::string_view text) { return {text.data(), text.size()}; }

// What one call does on all of its axes.
struct AxisMove {
  const rules::Transition *row;
  WrittenKind src, dst;
  ir::Combiner combiner = ir::Combiner::Sum;
  bool global = false;
  friend bool operator==(const AxisMove &, const AxisMove &) = default;
};

} // namespace

TypedCall call_of(const ir::Program &program, const CheckResult &result, const ir::Inst &inst) {
  TypedCall call{.op = inst.op,
                 .attrs = inst.attrs,
                 .context = inst.context,
                 .operands = inst.operands,
                 .list = {},
                 .args = {},
                 .results = {},
                 .claims = {}};
  call.list.read(program, inst.operands);
  auto known = [&](ir::ValueId value) {
    return rules::TensorInfo{result.types[value.index], result.shapes[value.index],
                             result.sizes[value.index]};
  };
  for (ir::ValueId value : call.list.values)
    call.args.push_back(known(value));
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    const ir::Value &value = program.values[inst.result(i)];
    call.results.push_back(known(inst.result(i)));
    call.claims.push_back({value.shape, {}, value.global_shape});
  }
  return call;
}

struct DialectPrinter::State {
  ir::Program &program;
  const Dialect from, to;
  const ir::StringId to_word;
  rules::Rules ours, theirs;

  State(ir::Program &program, Dialect to, Dialect from)
      : program(program), from(from), to(to),
        to_word(program.strings.add(ref(ir::kDialectWords[static_cast<unsigned>(to)]))),
        ours(program), theirs(program) {}

  // --- look-up in the other vocabulary ---

  const rules::ResolvedOp &resolve(llvm::StringRef name) {
    ir::StringId before = std::exchange(program.dialect, to_word);
    const rules::ResolvedOp &op = theirs.resolve(ir::OpNameId{program.strings.add(name).index});
    program.dialect = before;
    return op;
  }
  bool same_meaning(const rules::ResolvedOp &op, llvm::StringRef name) {
    const rules::ResolvedOp &other = resolve(name);
    return other.form == op.form && other.row == op.row && other.transition == op.transition &&
           other.boundary == op.boundary && other.alias == op.alias && other.order == op.order;
  }
  // Our words, or those of the program, as the other dialect reads them.
  DialectText own(const TypedCall &call, std::string why = "") {
    llvm::StringRef name = program.op_name(call.op);
    const rules::ResolvedOp &op = ours.resolve(call.op);
    DialectText printed;
    std::string kept = name.str();
    for (llvm::StringRef prefix : {"", "spmd.", "jax.", "aten."})
      if (std::string each = (prefix + name).str(); same_meaning(op, each)) {
        kept = each;
        break;
      }
    if (!why.empty() && to != Dialect::Spmd && op.form != rules::OpForm::Unknown &&
        resolve("spmd." + kept).form == op.form && same_meaning(op, "spmd." + kept))
      kept = "spmd." + kept;
    printed.steps.push_back({kept, call.attrs, {}});
    if (!why.empty() && to != Dialect::Spmd)
      printed.no_equivalent.push_back(std::move(why));
    return printed;
  }

  // --- typing again ---

  rules::Application application(const TypedCall &call, const rules::ResolvedOp &op,
                                 ir::AttrsId attrs) const {
    return {program, op, attrs, call.context, call.list.slots, call.args, call.claims};
  }
  // The type without what the words of no framework tell apart, or that was left to the uses.
  ir::Type plain(ir::Type type, AxisSet open) const {
    AxisSet reduced = type.of(Kind::Reduced) - type.either();
    type.set_kind(reduced, Kind::Replicate);
    type.clear(open);
    return type;
  }
  // Of the axes on which two types differ: what the words say instead.
  std::string differences(const ir::Type &was, const ir::Type &is) const {
    std::string text;
    for (AxisId axis : program.meshes[was.mesh()].typed_axes()) {
      std::optional<WrittenKind> a = ir::kind_word(was, axis), b = ir::kind_word(is, axis);
      if (a && b && !(*a == *b))
        text += fmt::format("{}{} on {} is {}", text.empty() ? "" : ", ", ir::print(*a),
                            ir::print_axes(program, was.mesh(), axis), ir::print(*b));
    }
    return text;
  }

  // Types the steps one after the other; false if the last result is not that of the call.
  bool holds(const TypedCall &call, DialectText &printed) {
    const rules::Outcome wanted = ours.apply(application(call, ours.resolve(call.op), call.attrs));
    TypedCall at = call;
    rules::Outcome made;
    for (size_t i = 0; i < printed.steps.size(); ++i) {
      const DialectStep &step = printed.steps[i];
      bool last = i + 1 == printed.steps.size();
      if (i > 0) {
        at.list = {};
        rules::Slot slot;
        slot.form = rules::Slot::Form::Tensor;
        slot.count = 1;
        at.list.slots.push_back(slot);
        at.args = {{made.types[0], made.shapes[0],
                    made.sizes.empty() ? ir::ShardSizesId() : made.sizes[0]}};
      }
      if (step.operands.valid())
        reorder(call, step.operands, at);
      at.claims = last ? call.claims : llvm::SmallVector<rules::ResultClaim, 2>(1);
      made = theirs.apply(application(at, resolve(step.name), step.attrs));
      if (!last && !made.violations.empty())
        return false;
    }
    if (made.violations.size() != wanted.violations.size() ||
        made.types.size() != wanted.types.size())
      return false;
    for (size_t i = 0; i < wanted.violations.size(); ++i)
      if (!(made.violations[i] == wanted.violations[i]))
        return false;
    return same_results(call, wanted, made, printed);
  }
  bool same_results(const TypedCall &call, const rules::Outcome &wanted, const rules::Outcome &made,
                    DialectText &printed) {
    for (size_t i = 0; i < made.types.size(); ++i) {
      const ir::Type was = program.types[wanted.types[i]], is = program.types[made.types[i]];
      AxisSet open = was.either() | is.either();
      if (!(plain(was, open) == plain(is, open)) || wanted.shapes[i] != made.shapes[i])
        return false;
      ir::Type found = i < call.results.size() && call.results[i].type.valid()
                           ? program.types[call.results[i].type]
                           : was;
      if (std::string text = differences(found.mesh() == is.mesh() ? found : was, is);
          !text.empty())
        printed.no_equivalent.push_back(std::move(text));
    }
    return true;
  }
  // The operands of the step, which are those of the call in another order.
  void reorder(const TypedCall &call, ir::OperandsId operands, TypedCall &at) const {
    at.list.read(program, operands);
    at.args.clear();
    for (ir::ValueId value : at.list.values)
      at.args.push_back(call.args[static_cast<size_t>(llvm::find(call.list.values, value) -
                                                      call.list.values.begin())]);
  }

  // --- attributes ---

  ir::AttrsId with(ir::AttrsId attrs, llvm::StringRef key, std::optional<AttrValue> value) {
    ir::AttrDict dict = attrs.valid() ? program.attrs[attrs] : ir::AttrDict();
    ir::StringId id = program.strings.add(key);
    llvm::erase_if(dict.attrs, [&](const ir::Attr &attr) { return attr.key == id; });
    if (value)
      dict.attrs.push_back({id, *value});
    ir::sort_canonically(dict, program.strings);
    return program.attrs.add(std::move(dict));
  }
  AttrValue numbers(std::initializer_list<int64_t> list) {
    ir::AttrList made;
    for (int64_t each : list)
      made.items.push_back(AttrValue::integer(each));
    return AttrValue::list(program.lists.add(std::move(made)));
  }
  AttrValue lists(std::initializer_list<AttrValue> list) {
    return AttrValue::list(program.lists.add({{list.begin(), list.end()}}));
  }

  // --- ops ---

  unsigned rank(const rules::TensorInfo &arg) const {
    return arg.shape.valid() ? static_cast<unsigned>(program.shapes[arg.shape].dims.size()) : 0;
  }
  // Which dimensions a product contracts and which both operands have; none if dot_general has no
  // form for it.
  std::optional<ir::AttrsId> contraction(const TypedCall &call, const rules::Equation &row) {
    if (call.args.size() != 2)
      return std::nullopt;
    const auto left = llvm::ArrayRef(row.dims).slice(row.refs[0].first_dim, row.refs[0].dim_count),
               right = llvm::ArrayRef(row.dims).slice(row.refs[1].first_dim, row.refs[1].dim_count);
    const bool has_batch = right.front().form == rules::Dim::Form::Rest;
    int64_t a = rank(call.args[0]), b = rank(call.args[1]);
    bool plain = b == 2 && a >= 1, batched = has_batch && a == b && a == 3;
    if (!plain && !batched)
      return std::nullopt;
    // The last dimension of the first operand stands in the second one too.
    const auto *met =
        llvm::find_if(right, [&](const rules::Dim &dim) { return dim.first == left.back().first; });
    int64_t second = b - (right.end() - met);
    AttrValue batch =
        batched ? lists({numbers({0}), numbers({0})}) : lists({numbers({}), numbers({})});
    return with(call.attrs, "dimension_numbers",
                lists({lists({numbers({a - 1}), numbers({second})}), batch}));
  }
  // The operands in the order of the other spelling; none if that is not a matter of order.
  ir::OperandsId permuted(const TypedCall &call, const rules::ResolvedOp &old,
                          const rules::ResolvedOp &now) {
    llvm::ArrayRef<ir::Operand> operands = program.operand_lists[call.operands];
    auto place = [](const rules::ResolvedOp &op, size_t at) {
      return op.order.empty() ? static_cast<uint8_t>(at) : op.order[at];
    };
    if (now.order == old.order || now.order.size() != operands.size() ||
        (!old.order.empty() && old.order.size() != operands.size()))
      return {};
    llvm::SmallVector<ir::Operand, 4> made;
    for (size_t at = 0; at < operands.size(); ++at)
      for (size_t from = 0; from < operands.size(); ++from)
        if (place(old, from) == place(now, at) && operands[from].is_value())
          made.push_back(operands[from]);
    return made.size() == operands.size() ? program.operand_lists.add(made) : ir::OperandsId();
  }

  DialectText equation(const TypedCall &call) {
    const rules::ResolvedOp &op = ours.resolve(call.op);
    std::string name = op.row ? std::string(op.row->name) : std::string();
    std::string_view word = op.forward || op.assumed ? std::string_view()
                            : to == Dialect::Jax     ? rules::jax_word(name)
                            : to == Dialect::Spmd    ? std::string_view(name)
                                                     : rules::torch_word(name);
    std::string why = fmt::format("`{}`: {}", program.op_name(call.op),
                                  to == Dialect::Jax ? "JAX has no primitive for it"
                                                     : "torch has no word for it");
    if (word.empty())
      return own(call, std::move(why));
    DialectText printed;
    printed.found = true;
    DialectStep step{std::string(word) + (op.in_place ? "_" : ""), call.attrs, {}};
    const rules::ResolvedOp &now = resolve(step.name);
    if (now.alias && now.alias->factors == rules::dot_general_factors)
      step.attrs = contraction(call, op.row->equation.equation).value_or(ir::AttrsId());
    if (!step.attrs.valid())
      return own(call, std::move(why));
    step.operands = permuted(call, op, now);
    printed.steps.push_back(step);
    return holds(call, printed) ? printed : own(call, std::move(why));
  }

  // --- transitions ---

  // What the call does on each of its axes; none if that is not clear.
  std::optional<llvm::SmallVector<AxisMove, 2>> moves_of(const TypedCall &call,
                                                         const rules::Application &app,
                                                         const rules::TransitionCall &read) {
    llvm::SmallVector<AxisMove, 2> moves;
    llvm::SmallVector<uint32_t, 2> operands = rules::operands_of(app);
    for (size_t k = 0; k < operands.size(); ++k) {
      const ir::Type type = app.type(call.args[operands[k]]);
      AxisSet lists = app.local_axes() | (type.of(Kind::Varying) - type.sharded());
      const ir::Shape shape = call.args[operands[k]].shape.valid()
                                  ? program.shapes[call.args[operands[k]].shape]
                                  : ir::Shape();
      rules::TransitionOperand view{app,    read,    type,
                                    &shape, nullptr, app.mesh().typed_axes() - lists};
      for (size_t i = 0; i < read.axes.written.size(); ++i)
        for (AxisId axis : read.axes.written[i].axes) {
          rules::AxisEffect effect = rules::effect_of(view, i, axis);
          AxisMove move{effect.row, effect.src, effect.dst, read.asked(effect.src), effect.global};
          // What the call or its uses decided.
          if (move.dst.form == WrittenKind::Form::Either && k < call.results.size() &&
              call.results[k].type.valid()) {
            std::optional<Kind> kind = program.types[call.results[k].type].kind(axis);
            move.dst = {.kind = kind.value_or(Kind::Invariant)};
          }
          bool list = read.unstated->reduces && move.src.kind == Kind::Varying;
          move.row =
              rules::find_transition(read.op, list ? Kind::Partial : move.src.kind, move.dst.kind);
          if (!move.row)
            move.row = effect.row;
          if (!move.row)
            return std::nullopt;
          moves.push_back(move);
        }
    }
    return moves;
  }

  std::string about(const TypedCall &call, const rules::TransitionCall *read,
                    std::string_view why) {
    std::string axes;
    ir::MeshId mesh = program.contexts[call.context].mesh;
    if (read)
      axes = " on " + ir::print_axes(program, mesh, read->axes.all());
    return fmt::format("`{}`{}: {}", program.op_name(call.op), axes, why);
  }

  // From type to type: what whole tensors go through in JAX and DTensor.
  std::optional<DialectText> whole(const TypedCall &call) {
    std::string_view name = ir::redistribute_word(to);
    if (name.empty() || call.results.size() != 1 || !call.results[0].type.valid() ||
        call.args.size() != 1)
      return std::nullopt;
    ir::Type type = program.types[call.results[0].type];
    type.set_gradient_free(false);
    type.clear(type.either());
    ir::Claim claim{program.types.add(type), call.results[0].shape, {}};
    DialectText printed;
    printed.found = true;
    ir::AttrsId attrs = call.attrs;
    for (llvm::StringRef key : {"axis", "src", "dst", "dim", "expert", "to"})
      attrs = with(attrs, key, std::nullopt);
    if (!program.find(call.attrs, "type"))
      attrs = with(attrs, "type", AttrValue::claim(program.claims.add(claim)));
    if (std::string lost = ir::describe_loss(program, type, to); !lost.empty())
      printed.no_equivalent.push_back(std::move(lost));
    printed.steps.push_back({std::string(name), attrs, {}});
    return holds(call, printed) ? std::optional(std::move(printed)) : std::nullopt;
  }

  DialectText transition(const TypedCall &call) {
    const rules::ResolvedOp &op = ours.resolve(call.op);
    rules::Application app = application(call, op, call.attrs);
    rules::Outcome out;
    const rules::Outcome &found = ours.apply(app);
    if (!found.violations.empty())
      return own(call, about(call, nullptr,
                             fmt::format("left as it is: it has the finding [{}]",
                                         rules::info(found.violations.front()).name)));
    for (const rules::TensorInfo &arg : call.args)
      if (program.types[arg.type].unknown)
        return own(call,
                   about(call, nullptr, "left as it is, the type of its operand is not known"));
    if (program.find(call.attrs, "type")) {
      std::optional<DialectText> printed = whole(call);
      return printed ? *printed : own(call, about(call, nullptr, no_word()));
    }
    std::optional<rules::TransitionCall> read = rules::read_call(app, out);
    std::optional<llvm::SmallVector<AxisMove, 2>> moves;
    if (read)
      moves = moves_of(call, app, *read);
    if (!moves || moves->empty())
      return own(call, about(call, nullptr, no_word()));
    if (to == Dialect::Spmd)
      return in_full(call, *read, *moves);
    bool uniform =
        llvm::all_of(*moves, [&](const AxisMove &each) { return each == moves->front(); });
    const AxisMove &move = moves->front();
    bool global = llvm::all_of(*moves, [](const AxisMove &each) { return each.global; });
    if (global && !ir::redistribute_word(to).empty()) {
      std::optional<DialectText> printed = whole(call);
      return printed ? *printed : own(call, about(call, &*read, no_word()));
    }
    const rules::DialectTransition *row =
        uniform ? rules::dialect_transition(to, *move.row, move.combiner) : nullptr;
    if (!row || row->words.empty())
      return own(call, about(call, &*read, row ? row->why : no_word()));
    DialectText printed = steps(call, move, *row);
    if (!holds(call, printed))
      return own(call, about(call, &*read, no_word()));
    if (!row->why.empty())
      printed.no_equivalent.push_back(about(call, &*read, row->why));
    return printed;
  }
  std::string_view no_word() const {
    return to == Dialect::Jax       ? "JAX has no word for it"
           : to == Dialect::DTensor ? "DTensor has no word for it"
                                    : "LTensor has no word for it";
  }

  // In our words, nothing left out.
  DialectText in_full(const TypedCall &call, const rules::TransitionCall &read,
                      llvm::ArrayRef<AxisMove> moves) {
    ir::AttrsId attrs = with(call.attrs, "to", std::nullopt);
    bool uniform = llvm::all_of(moves, [&](const AxisMove &each) { return each == moves.front(); });
    DialectText printed;
    printed.found = true;
    if (uniform) {
      WrittenKind src = moves.front().src;
      src.combiner = src.kind == Kind::Partial ? moves.front().combiner : src.combiner;
      attrs = with(attrs, "src", AttrValue::kind(src));
      attrs = with(attrs, "dst", AttrValue::kind(moves.front().dst));
      if (moves.front().row->expert)
        attrs = with(attrs, "expert", AttrValue::boolean(true));
    }
    printed.steps.push_back({std::string(rules::name_of(read.op)), attrs, {}});
    if (holds(call, printed))
      return printed;
    return own(call);
  }

  DialectText steps(const TypedCall &call, const AxisMove &move,
                    const rules::DialectTransition &row) {
    DialectText printed;
    printed.found = true;
    llvm::SmallVector<llvm::StringRef, 2> words;
    ref(row.words).split(words, ' ');
    WrittenKind src = move.src;
    for (size_t i = 0; i < words.size(); ++i) {
      bool last = i + 1 == words.size();
      const rules::SpellingKinds *spelled = rules::spelled_words(words[i]);
      WrittenKind dst = move.dst;
      if (!last)
        dst = {.kind = spelled && spelled->dst ? *spelled->dst : Kind::Invariant};
      ir::AttrsId attrs = call.attrs;
      if (i > 0) { // over the same ranks, and nothing else
        attrs = {};
        for (llvm::StringRef key : {"axis", "group"})
          if (const AttrValue *ranks = program.find(call.attrs, key))
            attrs = with(attrs, key, *ranks);
      }
      attrs = with(with(attrs, "expert", std::nullopt), "to", std::nullopt);
      if (spelled && spelled->combiner)
        attrs = with(attrs, "op", std::nullopt);
      // A dimension is said by the end that has it; where the word leaves ends out they are ours.
      auto end = [&](llvm::StringRef key, const WrittenKind &word, bool in_word) {
        bool shard = word.form == WrittenKind::Form::Shard;
        bool variant = to == Dialect::LTensor && word.kind == Kind::Partial;
        bool said = (shard || !in_word) && !variant;
        attrs = with(attrs, key, said ? std::optional(AttrValue::kind(word)) : std::nullopt);
      };
      end("src", src, spelled && (spelled->src || spelled->dst) && !spelled->combiner);
      end("dst", dst, spelled && spelled->dst);
      printed.steps.push_back({words[i].str(), attrs, {}});
      src = dst;
    }
    return printed;
  }
};

DialectPrinter::DialectPrinter(ir::Program &program, Dialect to, std::optional<Dialect> from)
    : state_(std::make_unique<State>(program, to, from.value_or(ir::dialect_of(program)))) {}
DialectPrinter::~DialectPrinter() = default;

DialectText DialectPrinter::print(const TypedCall &call) {
  bool typed =
      llvm::all_of(call.args, [](const rules::TensorInfo &arg) { return arg.type.valid(); });
  if (state_->from == state_->to || !typed) {
    DialectText printed = state_->own(call);
    printed.found = state_->from == state_->to;
    return printed;
  }
  switch (state_->ours.resolve(call.op).form) {
  case rules::OpForm::Equation:
    return state_->equation(call);
  case rules::OpForm::Transition:
    return state_->transition(call);
  case rules::OpForm::Boundary:
  case rules::OpForm::Call:
  case rules::OpForm::Unknown:
    break;
  }
  return state_->own(call);
}

} // namespace spmd::checker
