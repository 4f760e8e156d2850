// Local steps of a plan as commands.
#include "runtime/device/lowered_plan.h"

namespace spmd::runtime {

// Pieces of a dimension, one after another, beside the whole: `split` and `join`.
bool LoweredPlan::lower_pieces(const LocalStep &local, const DeviceArray &from,
                               const DeviceArray &to, std::vector<Command> &commands) const {
  const bool splits = local.form == LocalStepForm::Split;
  const Dims &whole = splits ? *from.dims : *to.dims;
  const Strides strides = strides_of(whole);
  int64_t first = 0;
  for (int64_t length : plan_.cuts[local.cut].on(own_)) {
    Dims piece(whole.begin(), whole.end());
    piece[local.dim] = length;
    const Strides alone = strides_of(piece);
    const int64_t in_whole = first * strides[local.dim],
                  in_row = whole[local.dim] ? first * (count(whole) / whole[local.dim]) : 0;
    BoxOf box{piece, strides, alone, in_whole, in_row};
    if (!splits)
      box = {piece, alone, strides, in_row, in_whole};
    if (!add_box(from, to, box, false, commands))
      return false;
    first += length;
  }
  return true;
}

bool LoweredPlan::lower_overwrite(llvm::ArrayRef<DeviceArray> operands, const DeviceArray &to,
                                  std::vector<Command> &commands) {
  const DeviceArray &before = operands[0], &numbers = operands[1], &values = operands[2];
  if (to.data == numbers.data || to.data == values.data || numbers.size() != values.size())
    return false;
  if (to.data != before.data)
    add_box(before, to, {{to.size()}, {1}, {1}, 0, 0}, false, commands);
  SpmdScatter made{};
  made.form = kSpmdReplaceRows, made.row_element = element_of(numbers.dtype);
  made.entries = numbers.size(), made.width = 1;
  made.row_numbers = numbers.data, made.order = scratch_;
  made.from = values.data, made.from_element = element_of(values.dtype);
  made.to = to.data, made.to_element = element_of(to.dtype);
  made.from_entry = made.from_stride = made.to_row = made.to_stride = 1;
  made.rows = to.size();
  scratch_bytes_ = std::max(scratch_bytes_, static_cast<uint64_t>(made.rows) * 4 + 512);
  commands.push_back(made);
  return true;
}

bool LoweredPlan::lower_local_step(const LocalStep &local, std::vector<Command> &commands) {
  llvm::SmallVector<DeviceArray, 4> operands;
  for (const Use &use : plan_.used(local.operands))
    operands.push_back(array_of(use));
  const DeviceArray to = array_of(local.result);
  if (to.is_complex() && local.form != LocalStepForm::Copy)
    return false;
  uint32_t position = local.group.valid() ? groups_[local.group.index].position(own_) : 0;
  auto copy = [&](const DeviceArray &from, int64_t at, int64_t into, int64_t size) {
    return add_box(from, to, {{size}, {1}, {1}, at, into}, false, commands);
  };
  auto slice = [&](const Dims &whole, const DeviceArray &from, bool out) {
    llvm::ArrayRef<int64_t> lengths = plan_.cuts[local.cut].on(own_);
    int64_t first = 0;
    for (uint32_t p = 0; p < position; ++p)
      first += lengths[p];
    Dims piece(whole.begin(), whole.end());
    piece[local.dim] = lengths[position];
    const Strides strides = strides_of(whole), alone = strides_of(piece);
    const int64_t at = first * strides[local.dim];
    return add_box(from, to,
                   out ? BoxOf{piece, strides, alone, at, 0} : BoxOf{piece, alone, strides, 0, at},
                   false, commands);
  };
  switch (local.form) {
  case LocalStepForm::Copy:
    return copy(operands[0], 0, 0, to.size());
  case LocalStepForm::TakeOwnSlice:
    return slice(*operands[0].dims, operands[0], true);
  case LocalStepForm::PlaceOwn:
    add_fill(to, 0, commands);
    return slice(*to.dims, operands[0], false);
  case LocalStepForm::KeepOnRoot:
    if (position == local.root)
      return copy(operands[0], 0, 0, to.size());
    add_fill(to, 0, commands);
    return true;
  case LocalStepForm::Split:
  case LocalStepForm::Join:
    return lower_pieces(local, operands[0], to, commands);
  case LocalStepForm::Scale:
    return add_scaled(operands[0], to, local.factor, local.divisor, commands);
  case LocalStepForm::Coordinate:
    add_fill(to, position, commands);
    return true;
  case LocalStepForm::TakeRow:
    return copy(operands[0], static_cast<int64_t>(local.row) * to.size(), 0, to.size());
  case LocalStepForm::StackRows: {
    int64_t at = 0;
    for (const DeviceArray &each : operands) {
      if (!copy(each, 0, at, each.size()))
        return false;
      at += each.size();
    }
    return true;
  }
  case LocalStepForm::Zero:
    add_fill(to, 0, commands);
    return true;
  case LocalStepForm::Receive: // between ranks
    return true;
  case LocalStepForm::Count:
    return add_scaled(DeviceArray(), to, 1, 1, commands);
  case LocalStepForm::Overwrite:
    return lower_overwrite(operands, to, commands);
  }
  return false;
}

} // namespace spmd::runtime
