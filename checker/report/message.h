// A finding in words: the sentence of its page with the arguments filled in.
#pragma once

#include "checker/check.h"

#include <string>

namespace spmd::checker {

// The value that a finding names. A rule sees no program: where it left the value out, it is the
// first operand.
ir::ValueId value_of(const ir::Program &program, const Finding &finding, ir::ValueId named);
// The sentence of a finding, words in the order of DiagnosticInfo::message.
std::string message_of(const ir::Program &program, const Finding &finding);
// `aten.mm.default`, or `input ids`: the op of an instruction, the role and name of a declaration.
std::string declared_or_op(const ir::Program &program, const Place &place);
// The mesh whose axes a finding there names.
ir::MeshId mesh_of(const ir::Program &program, const Place &place);
// One argument as it stands in a sentence.
std::string field_text(const ir::Program &program, const Finding &finding,
                       const rules::Field &field);

} // namespace spmd::checker
