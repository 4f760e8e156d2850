// The calls of frameworks that do what a step of a fix does. What autograd sees has a backward of
// its own, which must be the dual of the transition; `torch.distributed` itself is for values
// without gradients. Internal to the checker.
#pragma once

#include "checker/fix/calls.h"

namespace spmd::checker {

// What a rank has before and after: an addend, the same as all (R or I), a block.
enum class Has : uint8_t { P, R, I, S };

struct CallRow {
  rules::TransitionOp op;
  Has before, after;
  std::optional<bool> differentiable; // whether a gradient flows; none: it is right either way
  ScriptCall::Form form;
  // {x}: the tensor; {group}: the group of the axes; {argument}: `, group=tp_group`, nothing where
  // they are all of the job; {names}: the axes as an argument of JAX; {axes}: in words; {dim},
  // {from}: the dimension of blocks after and before; {block}: of what extent after.
  std::string_view text;
};

namespace call_rows {
using Form = ScriptCall::Form;
using Op = rules::TransitionOp;
inline constexpr std::optional<bool> kEither = std::nullopt;

// PyTorch has no word for what Megatron-LM calls its mappings: a forward with another backward.
inline constexpr CallRow kTorch[] = {
    {Op::AllReduce, Has::P, Has::R, true, Form::Expression,
     "torch.distributed.nn.functional.all_reduce({x}{argument})"},
    {Op::AllReduce, Has::P, Has::I, true, Form::Described,
     "an autograd.Function that sums {x} over {axes} forward and passes its gradient on backward "
     "(reduce_from_tensor_model_parallel_region in Megatron-LM)"},
    {Op::AllReduce, Has::P, Has::R, false, Form::Statement, "dist.all_reduce({x}{argument})"},
    {Op::AllReduce, Has::P, Has::I, false, Form::Statement, "dist.all_reduce({x}{argument})"},
    {Op::Convert, Has::I, Has::R, true, Form::Described,
     "an autograd.Function that returns {x} forward and sums its gradient over {axes} backward "
     "(copy_to_tensor_model_parallel_region in Megatron-LM)"},
    {Op::Convert, Has::I, Has::S, true, Form::Described,
     "an autograd.Function that takes the rank's block of {x} along dimension {dim} forward and "
     "gathers its gradient over {axes} backward (scatter_to_tensor_model_parallel_region in "
     "Megatron-LM)"},
    {Op::Convert, Has::R, Has::S, kEither, Form::Expression,
     "torch.chunk({x}, dist.get_world_size({group}), dim={dim})[dist.get_rank({group})]"},
    {Op::Convert, Has::R, Has::P, kEither, Form::Expression, "{x} * (dist.get_rank({group}) == 0)"},
    {Op::AllGather, Has::S, Has::R, true, Form::Expression,
     "torch.cat(torch.distributed.nn.functional.all_gather({x}{argument}), dim={from})"},
    {Op::AllGather, Has::S, Has::I, true, Form::Described,
     "an autograd.Function that gathers {x} along dimension {from} over {axes} forward and takes "
     "the rank's block of its gradient backward (gather_from_tensor_model_parallel_region in "
     "Megatron-LM)"},
    {Op::ReduceScatter, Has::P, Has::S, true, Form::Expression,
     "torch.distributed._functional_collectives.reduce_scatter_tensor_autograd({x}, \"sum\", "
     "{dim}, {group})"},
    {Op::ReduceScatter, Has::P, Has::S, false, Form::Expression,
     "torch.distributed._functional_collectives.reduce_scatter_tensor({x}, \"sum\", {dim}, "
     "{group})"},
    {Op::AllToAll, Has::S, Has::S, kEither, Form::Described,
     "torch.distributed.nn.functional.all_to_all of the pieces of {x} along dimension {dim}, "
     "joined along dimension {from}"},
};

// Gradients of JAX's own collectives are right by their types (`check_vma=True`), or those of a
// value that each rank uses for itself: there `psum` is P -> R, and nothing is P -> I.
inline constexpr CallRow kJax[] = {
    {Op::AllReduce, Has::P, Has::R, kEither, Form::Expression, "jax.lax.psum({x}, {names})"},
    {Op::AllReduce, Has::P, Has::I, false, Form::Expression, "jax.lax.psum({x}, {names})"},
    {Op::Convert, Has::I, Has::R, true, Form::Described,
     "a jax.custom_vjp function that returns {x} forward and sums its gradient over {axes} "
     "backward"},
    {Op::Convert, Has::I, Has::S, true, Form::Described,
     "a jax.custom_vjp function that takes the rank's block of {x} along dimension {dim} forward "
     "and gathers its gradient over {axes} backward"},
    {Op::Convert, Has::R, Has::S, kEither, Form::Expression,
     "jax.lax.dynamic_slice_in_dim({x}, jax.lax.axis_index({names}) * {block}, {block}, {dim})"},
    {Op::Convert, Has::R, Has::P, kEither, Form::Expression,
     "jnp.where(jax.lax.axis_index({names}) == 0, {x}, 0)"},
    {Op::AllGather, Has::S, Has::R, kEither, Form::Expression,
     "jax.lax.all_gather({x}, {names}, axis={from}, tiled=True)"},
    {Op::AllGather, Has::S, Has::I, false, Form::Expression,
     "jax.lax.all_gather({x}, {names}, axis={from}, tiled=True)"},
    {Op::ReduceScatter, Has::P, Has::S, kEither, Form::Expression,
     "jax.lax.psum_scatter({x}, {names}, scatter_dimension={dim}, tiled=True)"},
    {Op::AllToAll, Has::S, Has::S, kEither, Form::Expression,
     "jax.lax.all_to_all({x}, {names}, split_axis={dim}, concat_axis={from}, tiled=True)"},
};
} // namespace call_rows

} // namespace spmd::checker
