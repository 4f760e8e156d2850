// Why an operand is of its kind on an axis: walks definitions back to where the kind arose. On
// demand, for findings that are shown.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/SmallVector.h"

namespace spmd::checker {

// One sentence about one place: "`linear` summed over a dimension sharded on tp".
struct Note {
  enum class Form : uint8_t {
    Since,
    Because,
    Boundary,
    Gradient,
    Hint,
    Assumed,
    Measured, // what a run measured
    Guess,    // the mistake that would give such data
    Rerun     // the command that repeats the run
  };
  Form form = Form::Since;
  Place place;
  bool has_place = true;
  std::string text;
};
inline constexpr std::string_view kNoteWords[] = {
    "since", "because", "boundary", "gradient", "hint", "assumed", "measured", "guess", "rerun"};
inline constexpr unsigned kMaxNotes = 6;

// A note at the declaration of a value, still without words; without a place if it is not declared.
Note note_at_declaration(const ir::Program &program, ir::ValueId value);

// At most kMaxNotes, the origin always kept, runs of equal steps merged.
llvm::SmallVector<Note, 2> explain_finding(const ir::Program &program, const CheckResult &result,
                                           const Finding &finding);

// Where the kind of a value arose on each axis, one note for axes of one origin; and what it stands
// on where nothing states it.
llvm::SmallVector<Note, 2> explain_value(const ir::Program &program, const CheckResult &result,
                                         ir::ValueId value);

// The parameter whose gradient an operand is made of, where the finding does not name it.
ir::ValueId parameter_of(const ir::Program &program, const CheckResult &result,
                         const Finding &finding);

// is_observed: the type of a declared value on the axis comes from comparing ranks, and nothing
// states it. note_of_observed: the note that says what was seen, and which sum of the gradient
// would make it replicate; `passed`: the phrase for the ops between the value and the finding.
bool is_observed(const ir::Program &program, ir::ValueId value, ir::AxisId axis);
Note note_of_observed(const ir::Program &program, ir::ValueId value, ir::AxisId axis,
                      std::string_view passed);

// What it stands on that the axis cuts a declared value, or that the value is the same on all ranks
// of it; none: it is stated or observed, or not so.
std::optional<Note> explain_evidence(const ir::Program &program, const CheckResult &result,
                                     ir::ValueId value, ir::AxisId axis);
// The same of the nearest declared value that the operands are made of and that differs on the
// axes.
std::optional<Note> evidence_of_finding(const ir::Program &program, const CheckResult &result,
                                        llvm::ArrayRef<ir::ValueId> operands, ir::AxisSet axes);

// Of a parameter whose gradient was measured to be wrong: how it is reduced, and how a right one
// is.
llvm::SmallVector<Note, 2> notes_of_measured(const ir::Program &program, ir::ValueId value);

// Where the size of one of the axes comes from in the scale of a value; none if it does not occur
// there.
std::optional<Note> explain_scale(const ir::Program &program, const CheckResult &result,
                                  ir::AxisSet axes, ir::ValueId value);

} // namespace spmd::checker
