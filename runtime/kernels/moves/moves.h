// Kernels that only move elements: each says which boxes of its operands go where in its results,
// and one template carries that out in every domain.
#pragma once

#include "runtime/kernels/box.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace spmd::runtime {

struct Move {
  unsigned arg = 0, result = 0;
  Box box;
};
struct Moves {
  llvm::SmallVector<Move, 4> list; // in order: later ones overwrite
  std::optional<unsigned> fill;    // operand whose one number stands wherever nothing is moved to
  bool adds = false;               // several elements may go to one place
};
// The box has each of the `size` elements of the array that it goes to once.
bool covers(const Box &box, int64_t size);

// What a plan of moves is made from: extents, and the numbers of operands that say where to begin.
struct MoveSite {
  const KernelContext &context;
  llvm::ArrayRef<const Dims *> args, results; // of results that are not known null
  llvm::function_ref<double(unsigned)> first; // the first element of an argument

  // The place of an operand among the arguments; none if there is no such tensor.
  std::optional<unsigned> arg(std::string_view operand, unsigned member = 0) const;
  const Dims &dims(unsigned arg) const { return *args[arg]; }
  // A whole number by one of these names, or in a position among all operands.
  std::optional<int64_t> number(std::initializer_list<llvm::StringRef> names,
                                unsigned position) const;
  // The dimension that `dim` names, in a tensor of that rank.
  llvm::Expected<unsigned> dim(size_t rank, int64_t absent, unsigned position = ~0u) const;
};
using MovePlan = llvm::Expected<Moves> (*)(const MoveSite &);

// A box that is all of a dense array of these extents, in both.
Box box_of(llvm::ArrayRef<int64_t> dims);
// A box of `extents` between two dense arrays.
Box box_between(llvm::ArrayRef<int64_t> extents, llvm::ArrayRef<int64_t> from,
                llvm::ArrayRef<int64_t> to);

// A number as an element of a dtype.
template <class T> T element(double number) { return T(number); }
template <> Residue element(double number);

template <class T> llvm::Error carry_out(const Call<T> &call, MovePlan plan) {
  llvm::SmallVector<const Dims *, 6> args, results;
  for (const View<const T> &arg : call.args)
    args.push_back(arg.dims);
  for (const View<T> &result : call.results)
    results.push_back(result.dims);
  auto first = [&](unsigned arg) { return plain(call.args[arg][0]); };
  llvm::Expected<Moves> moves = plan({call.context, args, results, first});
  if (!moves)
    return moves.takeError();
  if (moves->fill) {
    View<const T> value = call.operand(*moves->fill);
    double number = call.context.number(*moves->fill).value_or(0);
    if (call.context.domain == Domain::Declared)
      number = rounded(number, call.results[0].dtype);
    std::fill_n(call.results[0].data, call.results[0].size(),
                value ? value[0] : element<T>(number));
  }
  bool covered = moves->list.size() == 1 && !moves->adds;
  for (const View<T> &result : call.results)
    if (!moves->fill && result && !(covered && covers(moves->list[0].box, result.size())))
      std::fill_n(result.data, result.size(), T(0));
  for (const Move &move : moves->list)
    if (call.results[move.result]) {
      if (moves->adds)
        add_box(call.args[move.arg].data, call.results[move.result].data, move.box);
      else
        copy_box(call.args[move.arg].data, call.results[move.result].data, move.box);
    }
  return llvm::Error::success();
}

template <MovePlan Plan, class T> llvm::Error moved(const Call<T> &call) {
  return carry_out(call, Plan);
}
// The gradient of the asked operand, put back box by box. False where positions would have to be
// followed: boxes of one result may lie over each other.
llvm::Expected<bool> put_back(const VjpCall &vjp, MovePlan plan);
template <MovePlan Plan> llvm::Expected<bool> moved_back(const VjpCall &vjp) {
  return put_back(vjp, Plan);
}
template <MovePlan Plan> constexpr KernelDef moving(std::string_view row) {
  return {.row = row,
          .real = moved<Plan, double>,
          .complex = moved<Plan, Complex>,
          .modular = moved<Plan, Residue>,
          .assigns = true,
          .moves = true,
          .puts_back = moved_back<Plan>,
          .boxes = Plan};
}

// Plans of layout_cuts.cc and layout_joins.cc, whose rows stand in one table with the others.
llvm::Expected<Moves> slice(const MoveSite &at);
llvm::Expected<Moves> slice_backward(const MoveSite &at);
llvm::Expected<Moves> slice_scatter(const MoveSite &at);
llvm::Expected<Moves> constant_pad(const MoveSite &at);
llvm::Expected<Moves> reflection_pad(const MoveSite &at);
llvm::Expected<Moves> replication_pad(const MoveSite &at);
llvm::Expected<Moves> circular_pad(const MoveSite &at);
llvm::Expected<Moves> cat(const MoveSite &at);
llvm::Expected<Moves> stack(const MoveSite &at);
llvm::Expected<Moves> block_diag(const MoveSite &at);
llvm::Expected<Moves> split(const MoveSite &at);
llvm::Expected<Moves> roll(const MoveSite &at);

} // namespace spmd::runtime
