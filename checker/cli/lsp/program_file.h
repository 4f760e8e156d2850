// A program that is open in an editor: what is wrong with it, and what is known at a position.
#pragma once

#include "checker/cli/inputs/checked_input.h"
#include "checker/cli/lsp/protocol.h"
#include "checker/fix/text_edits.h"
#include "checker/render/source/source.h"

#include "ir/text/lexer.h"

#include <functional>

namespace spmd::checker::lsp {

// The URI of a file of the source; none if it is not there.
using FindSource =
    std::function<std::optional<std::string>(const ir::Program &program, ir::FileId file)>;

class ProgramFile {
public:
  ProgramFile(std::string uri, std::string name, llvm::StringRef text, const Options &options);

  Json diagnostics(const FindSource &source) const;
  std::optional<Json> hover(Position position) const;
  std::optional<Json> definition(Position position, const FindSource &source) const;
  Json hints(Range range) const;
  // Fixes of what stands in the range, as changes of the text that were checked; and all together.
  Json actions(Range range) const;

private:
  const ir::Program &program() const { return checked_->program(); }
  bool usable() const { return report_.has_value(); }
  Range range_of(const Diagnostic &diagnostic, const Place &place) const;
  Json related(const Diagnostic &diagnostic, const FindSource &source) const;
  ir::Token token_at(uint64_t offset) const;
  // The statement that a byte is in; none if it is in no instruction.
  ir::InstId statement_at(uint64_t offset) const;
  // The instruction whose op the token is a part of; none if it is no op.
  ir::InstId operation_at(const ir::Token &token) const;
  // The value that a name means there.
  ir::ValueId value_at(const ir::Token &token) const;
  std::optional<uint64_t> defined_at(ir::ValueId value) const;
  Json edit(const std::vector<TextEdit> &edits) const;

  std::string uri_;
  Options options_;
  std::unique_ptr<CheckedInput> checked_;
  std::optional<Report> report_; // none if it cannot be read
  mutable SourceCache sources_;
  Lines lines_;
};

// What a diagnostic says: the sentence, types, fixes, and notes that have no place of their own.
std::string words_of(const Report &report, const Diagnostic &diagnostic);
// As editors show it; without related information.
Json diagnostic_json(const Report &report, const Diagnostic &diagnostic, Range range);

} // namespace spmd::checker::lsp
