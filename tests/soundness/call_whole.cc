// What a call does to what ranks mean together: on one device most of it does nothing. Written from
// the meaning of the kinds; no collective, local step or dual of a row is looked at. Backward is
// the adjoint.
#include "tests/soundness/call.h"

#include <fmt/format.h>

#include <numeric>

namespace spmd::soundness {

namespace {

bool is_list(const ir::WrittenKind &word) {
  return word.form == ir::WrittenKind::Form::Plain && word.kind == ir::Kind::Varying;
}
bool is_shard(const ir::WrittenKind &word) { return word.form == ir::WrittenKind::Form::Shard; }
bool is_kind(const ir::WrittenKind &word, ir::Kind kind) {
  return word.form == ir::WrittenKind::Form::Plain && word.kind == kind;
}
size_t dim_of(const ir::WrittenKind &word, const Array &tensor) {
  int rank = static_cast<int>(tensor.dims.size());
  return static_cast<size_t>(word.dim < 0 ? word.dim + rank : word.dim);
}

// Blocks of a dimension: as stated, or equal ones.
Dims blocks(const Dims &stated, int64_t extent, int64_t n) {
  if (!stated.empty())
    return stated;
  Dims lengths;
  for (int64_t i = 0; i < n; ++i) {
    int64_t block = (extent + n - 1) / n;
    lengths.push_back(std::max<int64_t>(0, std::min(block, extent - i * block)));
  }
  return lengths;
}
Array total(const Arrays &all) {
  Array sum = all[0];
  for (size_t i = 1; i < all.size(); ++i)
    add_to(sum, all[i]);
  return sum;
}

} // namespace

std::optional<WholeStep> WholeStep::make(const Call &call, const Step &step, bool listed,
                                         bool nowhere, std::string &why) {
  WholeStep made;
  made.call_ = &call;
  made.step_ = &step;
  llvm::StringRef name = call.name;
  made.takes_list_ = is_list(step.src) || (is_shard(step.src) && listed);
  made.gives_list_ = is_list(step.dst) || (is_shard(step.dst) && listed);
  bool repeats =
      name == "reinterpret" && !is_list(step.src) && !is_kind(step.src, ir::Kind::Partial);
  if (made.takes_list_ && made.gives_list_)
    made.form_ = name == "all_to_all"           ? Form::Exchange
                 : name == "collective_permute" ? Form::Permute
                 : name == "all_gather"         ? Form::JoinRepeat
                                                : Form::Same;
  else if (made.takes_list_)
    made.form_ = name == "broadcast" ? Form::Pick : name == "reinterpret" ? Form::Sum : Form::Join;
  else if (made.gives_list_)
    made.form_ = name == "reduce" ? Form::Place : repeats ? Form::Repeat : Form::Cut;
  else if (nowhere && repeats && is_kind(step.dst, ir::Kind::Partial))
    made.factor_ = Residue(step.size);
  if (call.average && nowhere)
    made.factor_ *= Residue(step.size).inverse();
  if (made.form_ == Form::Same && made.takes_list_ && name != "reinterpret" && name != "convert")
    return why = fmt::format("{} of a list", call.name), std::nullopt;
  return made;
}

Arrays WholeStep::forward(const Arrays &meant) const {
  size_t n = static_cast<size_t>(step_->size);
  const Array &first = meant[0];
  auto joined = [&] {
    return is_shard(step_->src) ? concat(meant, dim_of(step_->src, first))
                                : stack(meant, call_->dim);
  };
  Arrays result;
  switch (form_) {
  case Form::Same:
    result = meant;
    break;
  case Form::Join:
    // convert(V, P) by blocks names the dimension where it goes to; a stack by `dim`.
    result = {joined()};
    break;
  case Form::JoinRepeat:
    result = Arrays(n, joined());
    break;
  case Form::Cut:
    if (is_shard(step_->dst)) {
      size_t dim = dim_of(step_->dst, first);
      int64_t extent = dim < first.dims.size() ? first.dims[dim] : 0;
      result = split(first, blocks(call_->splits, extent, step_->size), dim);
    } else {
      result = unbind(first, call_->dim);
    }
    break;
  case Form::Repeat:
    result = Arrays(n, first);
    break;
  case Form::Sum:
    result = {total(meant)};
    break;
  case Form::Pick:
    result = {meant[call_->root < n ? call_->root : 0]};
    break;
  case Form::Place:
    result = Arrays(n, Array::zeros(first.dims));
    result[call_->root < n ? call_->root : 0] = first;
    break;
  case Form::Permute:
    result = Arrays(n, Array::zeros(first.dims));
    for (auto [from, to] : call_->sends)
      if (from < n && to < n)
        result[to] = meant[from];
    break;
  case Form::Exchange: {
    bool shard = is_shard(step_->src);
    size_t from = shard ? dim_of(step_->src, first) : call_->concat_dim;
    size_t to = shard ? dim_of(step_->dst, first) : call_->split_dim;
    for (size_t k = 0; k < n; ++k) {
      Arrays parts;
      for (const Array &each : meant) {
        if (to >= each.dims.size() || (!shard && each.dims[to] != step_->size)) {
          note_misfit("no such dimension to exchange");
          continue;
        }
        parts.push_back(
            shard ? split(each, blocks(call_->in_splits, each.dims[to], step_->size), to)[k]
                  : unbind(each, to)[k]);
      }
      if (parts.empty())
        parts = {first};
      result.push_back(shard ? concat(parts, from) : stack(parts, from));
    }
    break;
  }
  }
  if (result.size() != (gives_list_ ? n : 1)) {
    note_misfit("another number of pieces than ranks");
    result.resize(gives_list_ ? n : 1, first);
  }
  for (Array &each : result)
    each = times(std::move(each), factor_);
  return result;
}

// The adjoint, element by element: every form only copies elements, adds them up or drops them, so
// a run on their positions tells where each goes.
Arrays WholeStep::backward(const Arrays &gradients, const Arrays &meant) const {
  Arrays result;
  if (form_ == Form::Same) {
    for (const Array &each : gradients)
      result.push_back(times(each, factor_));
    return result;
  }
  for (const Array &each : meant)
    result.push_back(Array::zeros(each.dims));
  // One run per element with a 1 there; sizes are tiny.
  for (size_t member = 0; member < meant.size(); ++member)
    for (size_t place = 0; place < meant[member].data.size(); ++place) {
      Arrays unit;
      for (const Array &each : meant)
        unit.push_back(Array::zeros(each.dims));
      unit[member].data[place] = 1;
      Arrays image = forward(unit);
      Residue sum = 0;
      for (size_t k = 0; k < image.size(); ++k)
        for (size_t i = 0; i < image[k].data.size(); ++i)
          sum += image[k].data[i] * gradients[k].data[i];
      result[member].data[place] = sum;
    }
  return result;
}

} // namespace spmd::soundness
