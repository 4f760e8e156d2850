// What kernels and maps of dimensions read by name, the row declares: each instruction of the cases is run again with
// every name that stands in the sources of the kernels as a further attribute. Where that changes a result, or ends in
// an error, somebody reads the name.
#include "tests/unit/catch.h"
#include "tests/unit/run_program.h"

#include "checker/check.h"
#include "checker/operand_list.h"
#include "rules/attributes.h"
#include "rules/registry.h"
#include "runtime/evaluate.h"

#include "llvm/ADT/STLExtras.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>

using namespace spmd;
using runtime::Dims;
using runtime::Domain;
using runtime::Tensor;

namespace {

std::string bytes_of(const std::filesystem::path &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Every word in quotes: names of attributes among them.
std::set<std::string> quoted_names() {
  std::set<std::string> names;
  std::regex word("\"([a-z][a-z_0-9]+)\"");
  for (const auto &entry : std::filesystem::directory_iterator("runtime/kernels")) {
    std::string text = bytes_of(entry.path());
    for (std::sregex_iterator at(text.begin(), text.end(), word), end; at != end; ++at)
      names.insert((*at)[1]);
  }
  return names;
}

std::set<std::string> declared(const rules::OpDef &row, const rules::ResolvedOp &op) {
  std::set<std::string> names;
  for (const rules::OpDef *each : {&row, op.row})
    for (const rules::AttributeSpec &spec : rules::attributes_of(*each, op.alias).specs) {
      llvm::SmallVector<llvm::StringRef, 6> words;
      llvm::StringRef(spec.names.data(), spec.names.size()).split(words, '|');
      for (llvm::StringRef name : words)
        names.insert(name.str());
    }
  return names;
}

// One instruction with tensors to run it on; `usable` where all extents are known and small.
class Probe {
public:
  Probe(ir::Program &program, const checker::CheckResult &result, const ir::Inst &inst)
      : program_(program), inst_(inst) {
    operands_.read(program, inst.operands);
    for (ir::ValueId value : operands_.values)
      usable_ &= add(result.shapes[value.index], dims_, dtypes_);
    for (uint32_t k = 0; k < inst.result_count; ++k)
      usable_ &= add(result.shapes[inst.result(k).index], result_dims_, result_dtypes_);
    usable_ &= inst.result_count > 0;
  }
  bool usable() const { return usable_; }

  // Nothing if it cannot be run.
  std::optional<std::vector<Tensor>> run(const rules::ResolvedOp &op, ir::AttrsId attrs) {
    auto made = runtime::prepare(program_, op, attrs, operands_.slots, dtypes_, dims_,
                                 result_dtypes_, result_dims_);
    if (!made)
      return llvm::consumeError(made.takeError()), std::nullopt;
    std::mt19937 random(7);
    std::uniform_real_distribution<double> real(0.1, 0.9);
    std::vector<Tensor> args, results;
    for (size_t i = 0; i < dims_.size(); ++i) {
      args.push_back(Tensor::make(dtypes_[i], dims_[i], Domain::Declared));
      bool floating = ir::info(dtypes_[i]).form == ir::DTypeClass::Float;
      args.back().visit([&](auto &cells) {
        for (auto &cell : cells)
          if constexpr (std::is_same_v<std::decay_t<decltype(cell)>, double>)
            cell = floating ? real(random) : static_cast<double>(random() % 2);
      });
      round_cells(args.back(), Domain::Declared);
    }
    std::vector<runtime::Held> held;
    for (const Tensor &arg : args)
      held.push_back({&arg, arg.dtype, &arg.dims, nullptr, nullptr});
    for (size_t k = 0; k < result_dims_.size(); ++k)
      results.push_back(Tensor::make(result_dtypes_[k], result_dims_[k], Domain::Declared));
    if (llvm::Error problem = (*made)->run(held, {}, results, Domain::Declared, {}))
      return llvm::consumeError(std::move(problem)), std::nullopt;
    return results;
  }
  const ir::Inst &inst() const { return inst_; }

private:
  bool add(ir::ShapeId id, std::vector<Dims> &dims, std::vector<ir::DType> &dtypes) {
    if (!id.valid() || !program_.shapes[id].ranked)
      return false;
    const ir::Shape &shape = program_.shapes[id];
    Dims made;
    int64_t size = 1;
    for (ir::Extent extent : shape.dims) {
      if (!extent.is_number())
        return false;
      made.push_back(extent.number());
      size *= std::min<int64_t>(extent.number(), 1 << 20);
      if (size > 4096)
        return false;
    }
    dims.push_back(made), dtypes.push_back(shape.dtype);
    return true;
  }
  ir::Program &program_;
  const ir::Inst inst_;
  checker::OperandList operands_;
  std::vector<Dims> dims_, result_dims_;
  std::vector<ir::DType> dtypes_, result_dtypes_;
  bool usable_ = true;
};

bool same(const std::vector<Tensor> &a, const std::vector<Tensor> &b) {
  for (size_t k = 0; k < a.size(); ++k) {
    bool equal = true;
    a[k].visit([&](const auto &cells) {
      using Cells = std::decay_t<decltype(cells)>;
      b[k].visit([&](const auto &others) {
        if constexpr (std::is_same_v<Cells, std::decay_t<decltype(others)>>)
          equal = cells.size() == others.size() &&
                  std::memcmp(cells.data(), others.data(), cells.size() * sizeof(cells[0])) == 0;
      });
    });
    if (!equal)
      return false;
  }
  return true;
}

} // namespace

TEST_CASE("what kernels read by name, the row declares") {
  const std::set<std::string> names = quoted_names();
  CHECK(names.size() > 200);
  std::map<std::string, std::set<std::string>> read_of; // by row
  std::map<const rules::OpDef *, unsigned> tried;
  for (const std::string &path : runtime::case_files()) {
    const std::string bytes = bytes_of(path);
    ir::ReadResult read = ir::read_program(bytes);
    if (!read.errors.empty())
      continue;
    ir::Program &program = read.program;
    checker::CheckResult result = checker::check(program);
    rules::Rules rules(program);
    for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
      const ir::Inst inst = program.insts[ir::InstId{i}];
      const rules::ResolvedOp &op = rules.resolve(inst.op);
      if (op.form != rules::OpForm::Equation || op.forward || !op.row || tried[op.row] > 3)
        continue;
      Probe probe(program, result, inst);
      std::optional<std::vector<Tensor>> before;
      if (!probe.usable() || !(before = probe.run(op, inst.attrs)))
        continue;
      ++tried[op.row];
      std::vector<ir::AttrValue> values = {ir::AttrValue::number(0.25), ir::AttrValue::integer(2),
                                           ir::AttrValue::boolean(true),
                                           ir::AttrValue::boolean(false)};
      for (const char *word : {"mean", "right", "xy", "tanh", "reflect", "lower", "ortho"})
        values.push_back(ir::AttrValue::string(program.strings.add(word)));
      std::set<std::string> known = declared(*op.row, op);
      auto changes = [&](llvm::ArrayRef<std::string> more, ir::AttrValue value) {
        ir::AttrDict dict = program.attrs[inst.attrs];
        for (const std::string &name : more)
          if (!program.find(inst.attrs, name) && !known.count(name))
            dict.attrs.push_back({program.strings.add(name), value});
        ir::sort_canonically(dict, program.strings);
        std::optional<std::vector<Tensor>> after =
            probe.run(op, program.attrs.add(std::move(dict)));
        return !after || !same(*before, *after);
      };
      const std::vector<std::string> all(names.begin(), names.end());
      for (ir::AttrValue value : values) {
        if (!changes(all, value))
          continue;
        for (const std::string &name : all)
          if (changes(name, value))
            read_of[std::string(op.row->name)].insert(name);
      }
    }
  }
  CHECK(tried.size() > 300);
  for (const auto &[row, read] : read_of)
    for (const std::string &name : read)
      FAIL_CHECK(row << " reads `" << name << "`, which it does not declare");
}
