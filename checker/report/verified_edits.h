// Fixes as changes of the text that people wrote, each read and checked again before it is offered.
#pragma once

#include "checker/fix/text_edits.h"
#include "checker/report/report.h"

namespace spmd::checker {

// Empty where the fix is no change of the text, or where the text after it does not have fewer
// findings, and fewer of that name.
std::vector<TextEdit> verified_edits(const Report &report, const Finding &finding, const Fix &fix);
// Whether a program without it, read and checked again, has no other finding instead.
bool is_verified(const Report &report, const Saving &saving);

} // namespace spmd::checker
