// The solver of unstated words: union-find over the variables of open values. Facts are replayed in
// program order, so that of two uses that contradict the second one is reported.
#include "checker/walk/undecided/kind_variables.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::Type;
using ir::ValueId;
using ir::WrittenKind;

void KindVariables::set(ValueId value, Row row) {
  if (of_.empty()) {
    if (!row)
      return;
    of_.resize(value_count_);
  }
  of_[value.index] = row;
}

uint32_t KindVariables::variable(Row row, AxisId axis) const {
  AxisSet before = rows_[row].axes & AxisSet(static_cast<uint16_t>((1u << axis.index) - 1));
  return members_[rows_[row].first + static_cast<uint32_t>(before.size())];
}

uint32_t KindVariables::add_variable() {
  uint32_t made = static_cast<uint32_t>(variables_.size());
  variables_.push_back({.parent = made});
  return made;
}

KindVariables::Row KindVariables::fresh(AxisSet axes) {
  if (!axes)
    return 0;
  rows_.push_back({axes, static_cast<uint32_t>(members_.size())});
  for (int i = 0; i < axes.size(); ++i)
    members_.push_back(add_variable());
  return static_cast<Row>(rows_.size() - 1);
}

KindVariables::Row
KindVariables::make(AxisSet axes, const std::array<uint32_t, ir::kMaxAxes> &variables, Row like) {
  if (!axes)
    return 0;
  bool equal = this->axes(like) == axes;
  for (AxisId axis : axes)
    equal = equal && variable(like, axis) == variables[axis.index];
  if (equal)
    return like;
  rows_.push_back({axes, static_cast<uint32_t>(members_.size())});
  for (AxisId axis : axes)
    members_.push_back(variables[axis.index]);
  return static_cast<Row>(rows_.size() - 1);
}

KindVariables::Row KindVariables::completed(Row row, AxisSet axes) {
  if (this->axes(row).contains(axes))
    return row;
  std::array<uint32_t, ir::kMaxAxes> variables{};
  for (AxisId axis : axes)
    variables[axis.index] = this->axes(row).contains(axis) ? variable(row, axis) : add_variable();
  return make(axes, variables, 0);
}

uint32_t KindVariables::use(Place place, Kind needs, AxisId axis, uint32_t violation,
                            uint32_t entry) {
  uses_.push_back({place, needs, axis, violation, entry});
  return static_cast<uint32_t>(uses_.size() - 1);
}

uint32_t KindVariables::say(rules::Violation violation) {
  reported_.push_back(std::move(violation));
  return static_cast<uint32_t>(reported_.size() - 1);
}

const KindLinks *KindVariables::known_links(uint32_t application) const {
  bool known = application < links_of_.size() && links_of_[application];
  return known ? &links_[links_of_[application] - 1] : nullptr;
}

const KindLinks &KindVariables::remember_links(uint32_t application, KindLinks links) {
  if (application >= links_of_.size())
    links_of_.resize(application + 1);
  links_.push_back(std::move(links));
  links_of_[application] = static_cast<uint32_t>(links_.size());
  return links_.back();
}

uint32_t KindVariables::find(uint32_t variable) {
  while (variables_[variable].parent != variable) {
    uint32_t &parent = variables_[variable].parent;
    parent = variables_[parent].parent;
    variable = parent;
  }
  return variable;
}

uint32_t KindVariables::root(uint32_t variable) const {
  while (variables_[variable].parent != variable)
    variable = variables_[variable].parent;
  return variable;
}

uint32_t KindVariables::earlier(uint32_t a, uint32_t b) const {
  if (a == kNone || b == kNone)
    return a == kNone ? b : a;
  return uses_[b].order < uses_[a].order ? b : a;
}

void KindVariables::unite(uint32_t a, uint32_t b) {
  a = find(a), b = find(b);
  if (a == b)
    return;
  if (variables_[a].size < variables_[b].size)
    std::swap(a, b);
  Variable &into = variables_[a];
  const Variable &from = variables_[b];
  into.replicate = earlier(into.replicate, from.replicate);
  into.invariant = earlier(into.invariant, from.invariant);
  into.size += from.size;
  into.word = std::min(into.word, from.word);
  into.shown = std::min(into.shown, from.shown);
  variables_[b].parent = a;
}

void KindVariables::need(uint32_t variable, uint32_t use) {
  Variable &root = variables_[find(variable)];
  uint32_t &first = uses_[use].needs == Kind::Invariant ? root.invariant : root.replicate;
  first = earlier(first, use);
}

uint32_t KindVariables::word_variable(uint32_t inst, AxisId axis) {
  auto [at, is_new] = words_.try_emplace(word_key(inst, axis), 0);
  if (is_new) {
    at->second = add_variable();
    variables_[at->second].word = inst;
  }
  return at->second;
}

// A body is typed once for equal operands. What it needs of a value is needed at each call on its
// own, but for a collective of the body, which has one word for all of its calls.
void KindVariables::replay(llvm::ArrayRef<KindFact> facts, uint32_t body,
                           llvm::function_ref<llvm::ArrayRef<KindFact>(uint32_t)> facts_of) {
  llvm::DenseMap<uint32_t, uint32_t> bound; // of the latest call: root in the body -> of the caller
  for (const KindFact &fact : facts)
    switch (fact.form) {
    case KindFact::Form::Same:
      unite(fact.a, fact.b);
      break;
    case KindFact::Form::Needs:
      uses_[fact.b].body = body;
      uses_[fact.b].order = order_++;
      need(fact.a, fact.b);
      break;
    case KindFact::Form::Word:
      unite(fact.a, word_variable(fact.b, fact.axis));
      break;
    case KindFact::Form::Source:
      sources_.try_emplace(word_key(fact.b, fact.axis), fact.a);
      break;
    case KindFact::Form::Enter:
      bound.clear();
      if (entered_.size() <= fact.b)
        entered_.resize(fact.b + 1);
      if (!entered_[fact.b]) {
        entered_[fact.b] = true;
        replay(facts_of(fact.b), fact.b, facts_of);
      }
      break;
    case KindFact::Form::Bind: {
      uint32_t inside = find(fact.b);
      if (variables_[inside].word != kNone) {
        unite(fact.a, inside);
        break;
      }
      auto [at, is_new] = bound.try_emplace(inside, fact.a);
      if (!is_new) {
        unite(fact.a, at->second);
        break;
      }
      for (uint32_t use : {variables_[inside].replicate, variables_[inside].invariant})
        if (use != kNone)
          need(fact.a, use);
      if (variables_[inside].shown == kNone)
        variables_[inside].shown = fact.a;
      break;
    }
    }
}

void KindVariables::solve(llvm::ArrayRef<KindFact> main,
                          llvm::function_ref<llvm::ArrayRef<KindFact>(uint32_t)> facts_of) {
  replay(main, kMain, facts_of);
}

// The first use decides. A value of a body that no collective of the body made is shown as its
// first caller has it.
KindVariables::Decision KindVariables::decision(uint32_t variable) const {
  uint32_t at = root(variable);
  while (variables_[at].word == kNone && variables_[at].shown != kNone)
    at = root(variables_[at].shown);
  const Variable &found = variables_[at];
  Decision made{.use = earlier(found.replicate, found.invariant), .unstated = found.word != kNone};
  if (made.use != kNone)
    made.kind = uses_[made.use].needs;
  return made;
}

std::vector<KindVariables::Contradiction>
KindVariables::contradictions(llvm::function_ref<uint32_t(Place, uint32_t)> moved) {
  std::vector<Contradiction> found;
  llvm::DenseMap<std::pair<uint64_t, uint32_t>, size_t>
      known; // by place and what is reported there
  for (uint32_t v = 0; v < variables_.size(); ++v) {
    const Variable &root = variables_[v];
    if (root.parent != v || root.word == kNone || root.replicate == kNone ||
        root.invariant == kNone)
      continue;
    const Use &first = uses_[earlier(root.replicate, root.invariant)];
    const Use &second = uses_[&first == &uses_[root.replicate] ? root.invariant : root.replicate];
    uint64_t place = uint64_t(second.place.form) << 32 | second.place.index;
    auto [at, is_new] = known.try_emplace({place, second.violation}, found.size());
    if (!is_new) {
      found[at->second].clash.axes |= second.axis;
      continue;
    }
    uint32_t entry = second.body == kMain ? moved(second.place, second.entry) : second.entry;
    found.push_back({second.body,
                     entry,
                     {reported_[second.violation], second.place},
                     {ir::InstId{root.word}, first.place, first.needs, second.axis}});
  }
  llvm::stable_sort(found, [](const Contradiction &a, const Contradiction &b) {
    return std::pair(a.body, a.entry) < std::pair(b.body, b.entry);
  });
  return found;
}

void KindVariables::settle_types(ir::Program &program, CheckResult &result) const {
  for (uint32_t v = 0; v < of_.size(); ++v) {
    if (!of_[v])
      continue;
    Type type = program.types[result.types[v]];
    for (AxisId axis : undecided_axes(type) & axes(of_[v]))
      if (Decision made = decision(variable(of_[v], axis)); made.unstated)
        type.set_kind(axis, made.kind);
    result.types[v] = program.types.add(type);
  }
}

void KindVariables::settle_src_dst(CheckResult &result) const {
  std::vector<InferredSrcDst> inferred;
  llvm::DenseMap<uint32_t, llvm::SmallVector<uint32_t, 2>> of_inst;
  auto add = [&](const InferredSrcDst &at) {
    for (uint32_t i : of_inst[at.inst.index]) {
      InferredSrcDst &known = inferred[i];
      if (known.word.src == at.word.src && known.word.dst == at.word.dst && known.why == at.why &&
          known.use == at.use) {
        known.word.axes |= at.word.axes;
        return;
      }
    }
    of_inst[at.inst.index].push_back(static_cast<uint32_t>(inferred.size()));
    inferred.push_back(at);
  };
  for (const InferredSrcDst &at : result.inferred)
    for (AxisId axis : at.word.axes) {
      InferredSrcDst one = at;
      one.word.axes = axis;
      if (auto source = sources_.find(word_key(at.inst.index, axis)); source != sources_.end())
        if (Decision made = decision(source->second); made.unstated)
          one.word.src = WrittenKind{.kind = made.kind};
      if (at.word.dst.form == WrittenKind::Form::Either) {
        one.word.dst = WrittenKind{.kind = Kind::Replicate};
        one.why = InferredSrcDst::Why::NoGradient;
        if (auto word = words_.find(word_key(at.inst.index, axis)); word != words_.end()) {
          Decision made = decision(word->second);
          one.word.dst.kind = made.kind;
          one.why = made.use == kNone ? InferredSrcDst::Why::NoUse : InferredSrcDst::Why::Use;
          if (made.use != kNone)
            one.use = uses_[made.use].place;
        }
      }
      add(one);
    }
  result.inferred = std::move(inferred);
}

} // namespace spmd::checker
