// Each command in turn is made part of all that reads its result, if nobody else does, and nothing
// that it reads is written on the way. It is gone then, so chains of any length come together.
#include "runtime/device/fusion/fusion.h"

#include "ir/support/arrays.h"
#include "runtime/commands/scalar.h"
#include "runtime/device/fusion/fused_pair.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

namespace {

constexpr uint32_t kMostReaders = 8;
// What is made later keeps what it is made of from nobody, but takes time to look at.
constexpr uint32_t kFarthest = 1 << 10;

const DeviceTensor *holding(llvm::ArrayRef<DeviceTensor> tensors, Bytes bytes) {
  const auto *at =
      llvm::find_if(tensors, [&](const DeviceTensor &each) { return bytes.within(each.bytes); });
  return at == tensors.end() ? nullptr : at;
}

bool holds(llvm::ArrayRef<DeviceTensor> tensors, uint32_t id) {
  return llvm::any_of(tensors, [&](const DeviceTensor &each) { return each.id == id; });
}

// To read it anew costs no more than to read a copy: a number, or elements that lie as those of the
// copy do.
bool is_light(const Command &command) {
  auto row = [](llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to) {
    return from.empty() || from.back() == to.back() || from.back() == 0;
  };
  if (const auto *move = std::get_if<SpmdMove>(&command))
    return row({move->from_strides, move->loops}, {move->to_strides, move->loops});
  const auto &nest = std::get<SpmdLoopNest>(command);
  if (nest.inner || nest.steps != 1)
    return false;
  return nest.arrays == 0 || (nest.in[0].index == ~0u && row({nest.in[0].strides, nest.loops},
                                                             {nest.out.strides, nest.loops}));
}

bool adds(const Command &command) {
  const auto *nest = std::get_if<SpmdLoopNest>(&command);
  return nest && nest->adds;
}
bool adds_elements(const Command &command) {
  return adds(command) && std::get<SpmdLoopNest>(command).inner == 0;
}

// Whether it writes all of a tensor.
bool covers(const Command &command, Bytes tensor) {
  const Bytes out = bytes_written(command);
  uint32_t bytes = 0;
  if (const auto *move = std::get_if<SpmdMove>(&command))
    bytes = move->bytes;
  else if (const auto *nest = std::get_if<SpmdLoopNest>(&command))
    bytes = device::bytes_of(nest->out.element);
  return out.first == tensor.first && out.last == tensor.last &&
         static_cast<uint64_t>(results(command)) * bytes == tensor.last - tensor.first;
}

} // namespace

void Fusion::note(uint32_t item) {
  for (llvm::ArrayRef<DeviceTensor> tensors :
       {ir::as_array(items_[item].reads), ir::as_array(items_[item].writes)})
    for (const DeviceTensor &each : tensors) {
      std::vector<uint32_t> &users = tensors_[each.id].items;
      const auto at = llvm::lower_bound(users, item);
      if (at == users.end() || *at != item)
        users.insert(at, item);
    }
}

void Fusion::add(uint32_t step, llvm::ArrayRef<Command> commands,
                 llvm::ArrayRef<DeviceTensor> reads, llvm::ArrayRef<DeviceTensor> writes) {
  llvm::SmallVector<DeviceTensor, 8> between; // in the scratch, of this step
  llvm::SmallVector<DeviceTensor, 4> written; // results, so far
  for (const Command &command : commands) {
    Item item;
    item.step = step;
    item.command = command;
    auto read = [&](llvm::ArrayRef<DeviceTensor> tensors) {
      for (const DeviceTensor &each : tensors)
        if (!holds(item.reads, each.id))
          item.reads.push_back(each);
    };
    // What is left of an operand becomes part of the result that takes its bytes.
    for (const DeviceTensor &from : reads)
      for (const DeviceTensor &to : writes)
        if (from.bytes.meets(to.bytes) &&
            (commands.size() > 1 || accesses_listed_by_step(command) || !covers(command, to.bytes)))
          read(from);
    if (accesses_listed_by_step(command)) {
      read(reads), read(writes), read(between);
      item.writes.append(writes.begin(), writes.end());
      item.writes.append(between.begin(), between.end());
      item.writes.push_back({next_scratch_--, scratch_});
      written.assign(writes.begin(), writes.end());
    } else {
      note_bytes(item, {reads, writes, written}, between);
      if (holds(writes, item.writes[0].id))
        written.push_back(item.writes[0]);
    }
    items_.push_back(std::move(item));
    note(static_cast<uint32_t>(items_.size()) - 1);
  }
}

// Which tensors the bytes of a command are of.
void Fusion::note_bytes(Item &item, StepTensors of, llvm::SmallVectorImpl<DeviceTensor> &between) {
  auto read = [&](const DeviceTensor &tensor) {
    if (!holds(item.reads, tensor.id))
      item.reads.push_back(tensor);
  };
  bool known = true;
  for (Bytes bytes : bytes_read(*item.command)) {
    const DeviceTensor *tensor = nullptr;
    // A result may have the bytes of an operand.
    for (llvm::ArrayRef<DeviceTensor> among :
         {of.written, of.reads, of.writes, llvm::ArrayRef<DeviceTensor>(between)})
      tensor = tensor ? tensor : holding(among, bytes);
    if (tensor)
      read(*tensor);
    known &= tensor || bytes.first == bytes.last;
  }
  const Bytes out = bytes_written(*item.command);
  if (adds(*item.command))
    if (const DeviceTensor *own = holding(of.writes, out))
      read(*own);
  if (const DeviceTensor *tensor = holding(of.writes, out)) {
    item.writes.push_back(*tensor);
  } else if (const DeviceTensor *own = holding(between, out)) {
    item.writes.push_back(*own);
  } else {
    between.push_back({next_scratch_--, out});
    tensors_[between.back().id].ends = out.within(scratch_);
    item.writes.push_back(between.back());
    for (const DeviceTensor &each : ir::as_array(between).drop_back()) // in part
      if (each.bytes.meets(out))
        item.writes.push_back(each);
  }
  if (!known) // it is left as it is
    for (const DeviceTensor &tensor : of.reads)
      read(tensor);
}

void Fusion::add_other(uint32_t step, llvm::ArrayRef<DeviceTensor> reads,
                       llvm::ArrayRef<DeviceTensor> writes) {
  Item item;
  item.step = step;
  item.reads.assign(reads.begin(), reads.end());
  item.writes.assign(writes.begin(), writes.end());
  item.writes.push_back({next_scratch_--, scratch_});
  items_.push_back(std::move(item));
  note(static_cast<uint32_t>(items_.size()) - 1);
}

bool Fusion::may_write(const Item &item, Bytes bytes) {
  if (item.command && !accesses_listed_by_step(*item.command))
    return bytes_written(*item.command).meets(bytes);
  return llvm::any_of(item.writes,
                      [&](const DeviceTensor &each) { return each.bytes.meets(bytes); });
}

// All who read what the item makes. None: somebody does who is no command, or it is asked for
// later.
std::optional<std::vector<uint32_t>> Fusion::readers_of(uint32_t item) const {
  const uint32_t id = items_[item].writes[0].id;
  const Users &users = tensors_.find(id)->second;
  std::vector<uint32_t> readers;
  for (auto at = llvm::upper_bound(users.items, item); at != users.items.end(); ++at) {
    const Item &user = items_[*at];
    if (!user.command || accesses_listed_by_step(*user.command) || readers.size() == kMostReaders ||
        *at - item > kFarthest)
      return std::nullopt;
    readers.push_back(*at);
    if (!holds(user.writes, id))
      continue;
    // It replaces all that the item made, and reads it while it does: `fused` sees to that.
    if (adds_elements(*user.command) &&
        iterations(*user.command) == iterations(*items_[item].command))
      return readers;
    return std::nullopt;
  }
  if (readers.empty() || !users.ends)
    return std::nullopt;
  return readers;
}

// What the item reads is the same when the reader does its work.
bool Fusion::stays(uint32_t item, uint32_t reader) const {
  const llvm::SmallVector<Bytes, 8> read = bytes_read(*items_[item].command);
  for (uint32_t i = item + 1; i < reader; ++i)
    for (Bytes bytes : read)
      if (may_write(items_[i], bytes))
        return false;
  return true;
}

void Fusion::fuse(uint32_t item) {
  const Item &made = items_[item];
  if (!made.command || accesses_listed_by_step(*made.command) ||
      std::holds_alternative<SpmdMatrices>(*made.command) || adds(*made.command) ||
      made.writes.size() != 1)
    return;
  std::optional<std::vector<uint32_t>> readers = readers_of(item);
  if (!readers || !stays(item, readers->back()))
    return;
  int64_t often = 0;
  llvm::SmallVector<FusedReader, 4> fused_readers;
  for (uint32_t reader : *readers) {
    std::optional<Command> command =
        fused(*made.command, *items_[reader].command, made.writes[0].bytes);
    if (!command || !may_be_in_place(*command))
      return;
    often += iterations(*items_[reader].command);
    fused_readers.push_back({reader, *command});
  }
  if (often > results(*made.command) && !is_light(*made.command))
    return;
  commit(item, fused_readers);
}

void Fusion::commit(uint32_t item, llvm::ArrayRef<FusedReader> readers) {
  Item &gone = items_[item];
  const uint32_t id = gone.writes[0].id;
  auto leaves = [&](uint32_t tensor, uint32_t user) {
    std::vector<uint32_t> &users = tensors_[tensor].items;
    users.erase(std::remove(users.begin(), users.end(), user), users.end());
  };
  for (const FusedReader &each : readers) {
    Item &reader = items_[each.item];
    reader.command = each.command;
    llvm::erase_if(reader.reads, [&](const DeviceTensor &tensor) { return tensor.id == id; });
    if (!holds(reader.writes, id))
      leaves(id, each.item);
    for (const DeviceTensor &tensor : gone.reads)
      if (!holds(reader.reads, tensor.id))
        reader.reads.push_back(tensor);
    note(each.item);
    if (gone.step != reader.step)
      reader.fused.push_back(gone.step);
    reader.fused.append(gone.fused.begin(), gone.fused.end());
    changed_.push_back(reader.step);
  }
  for (const DeviceTensor &tensor : gone.reads)
    leaves(tensor.id, item);
  leaves(id, item);
  changed_.push_back(gone.step);
  gone.command.reset();
  gone.reads.clear(), gone.writes.clear();
}

std::map<uint32_t, FusedStep> Fusion::run() {
  for (uint32_t i = 0; i < items_.size(); ++i)
    fuse(i);
  std::map<uint32_t, FusedStep> made;
  for (uint32_t step : changed_)
    made[step];
  for (const Item &item : items_) {
    const auto at = made.find(item.step);
    if (at == made.end() || !item.command)
      continue;
    at->second.commands.push_back(*item.command);
    for (uint32_t step : item.fused)
      if (step != item.step && !llvm::is_contained(at->second.fused, step))
        at->second.fused.push_back(step);
  }
  return made;
}

} // namespace spmd::runtime
