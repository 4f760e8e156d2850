// The manual pages of the findings of meshes.h.
#include "rules/violations/meshes.h"

namespace spmd::rules {

constinit const DiagnosticInfo WrongAxis::info = {
    .name = "wrong-axis",
    .message = "`{op}` runs over[ {axes}][ ({layout})]; {operand} is {kind} on {actual}[ "
               "({actual_layout})]",
    .explain = R"(
The collective runs over one set of ranks, and its operand is what the collective expects along
another. Its data is therefore combined with that of unrelated ranks, and the sum or the gather
that was needed is still missing. Groups of equal size are easily taken for one another, above
all when their names say what they are used for and not how they are laid out; the ranks of both
are printed. Name the other axis, or the group that spans it.
)",
    .wrong = R"(
trace { mode = local }
mesh m { dp = 2, tp = 4 }
%x = input f32[8] V@dp P@tp
%y = all_reduce %x { axis = dp, src = P, dst = R }
)",
    .right = R"(
trace { mode = local }
mesh m { dp = 2, tp = 4 }
%x = input f32[8] V@dp P@tp
%y = all_reduce %x { axis = tp, src = P, dst = R }
)",
};

constinit const DiagnosticInfo UnknownGroup::info = {
    .name = "unknown-group",
    .severity = Severity::Warning,
    .message = "group {group} is not an axis of any mesh[: {ranks}]",
    .explain = R"(
The call names a group by its run-time key, and the ranks of that group are neither an axis of a
mesh nor a tuple of axes. Kinds are claims along axes, so nothing can be said about what this
call does: its results are unknown and what depends on them is not checked. Usually a mesh is
missing from the program, for example the one that the experts live on, or the list of ranks was
captured in another order than the grid has.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
group "7" = [0, 1, 3]
%x = input f32[8] P
%y = all_reduce %x { group = "7", src = P, dst = R }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
group "7" = [0, 1, 2, 3]
%x = input f32[8] P
%y = all_reduce %x { group = "7", src = P, dst = R }
)",
};

constinit const DiagnosticInfo UnknownAxis::info = {
    .name = "unknown-axis",
    .message = "no axis {axis} in mesh {mesh}[; nearest is {nearest}]",
    .explain = R"(
The op names an axis that the current mesh does not have. It is not typed, and its results are
unknown. A misspelt name is one cause; another is a region with a mesh of its own, in which the
axes of the surrounding mesh have other names. An axis of another mesh over the same ranks may
be named with the mesh in front, as in dense.dp, and is then found by its layout.
)",
    .wrong = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] P
%y = all_reduce %x { axis = tpp, src = P, dst = R }
)",
    .right = R"(
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8] P
%y = all_reduce %x { axis = tp, src = P, dst = R }
)",
};

constinit const DiagnosticInfo MeshChange::info = {
    .name = "mesh-change",
    .message = "`{op}` runs on mesh {to}; {operand} is on mesh {from}, whose axes do not group "
               "into those of {to}",
    .explain = R"(
The operand lives on another mesh over the same ranks, and the axes of the two cut one another:
no grouping of the pieces of one gives the axes of the other. A claim along an axis of the first
mesh then says nothing along an axis of the second, and the op cannot be typed. Usually one of
the meshes was laid out in another order than was thought. Transitions must bring the value to a
kind that both meshes can state, or the data must be sent.
)",
    .wrong = R"(
trace { mode = local }
mesh n { c = 3, d = 2 }
mesh m { a = 2, b = 3 }
%x = input f32[8] R@c V@d on n
%y = gelu %x
)",
    .right = R"(
trace { mode = local }
mesh n { c = 2, d = 3 }
mesh m { a = 2, b = 3 }
%x = input f32[8] R@c V@d on n
%y = gelu %x
)",
};

constinit const DiagnosticInfo MeshGroupMixed::info = {
    .name = "mesh-group-mixed",
    .message = "`{op}` takes {operand} with different kinds on {axes}, which axis {axis} of its "
               "mesh joins",
    .explain = R"(
Several axes of the operand's mesh make up one axis of the current mesh, and the operand is of
different kinds on them. Along the joint axis it is then of no kind at all: equal in one
direction and different in the other. An expert mesh that joins data and context parallel ranks
into one axis is the usual case. A transition on the first mesh must make the kinds equal before
the value is seen on the second.
)",
    .wrong = R"(
trace { mode = local }
mesh n { dp = 2, cp = 2 }
mesh m { edp = 4 }
%x = input f32[8] R@dp V@cp on n
%y = gelu %x
)",
    .right = R"(
trace { mode = local }
mesh n { dp = 2, cp = 2 }
mesh m { edp = 4 }
%x = input f32[8] V@dp V@cp on n
%y = gelu %x
)",
};

} // namespace spmd::rules
