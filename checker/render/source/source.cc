// Reads source files below the source root and prepares their lines for a terminal of some width.
// Relies on real paths: a link that leads out of the root is not followed.
#include "checker/render/source/source.h"

#include "rules/violations/coverage.h"

#include "ir/support/escape.h"
#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/Unicode.h"

namespace spmd::checker {
namespace {

constexpr uint64_t kMaxSourceBytes = uint64_t(64) << 20;
constexpr unsigned kTabWidth = 4;
constexpr llvm::StringRef kCut = "...";

bool is_below(llvm::StringRef path, llvm::StringRef root) {
  if (!path.consume_front(root))
    return false;
  return ir::ends_with(root, "/") || ir::starts_with(path, "/");
}

std::string sha256_of(llvm::StringRef bytes) {
  llvm::SHA256 hash;
  hash.update(bytes);
  return llvm::toHex(hash.final(), /*LowerCase=*/true);
}

std::vector<size_t> index_lines(llvm::StringRef bytes) {
  std::vector<size_t> starts{0};
  for (size_t at = bytes.find('\n'); at != llvm::StringRef::npos; at = bytes.find('\n', at + 1))
    starts.push_back(at + 1);
  return starts;
}

// One code point as it is shown.
struct Cell {
  std::string text;
  unsigned width;
};

size_t code_point_length(llvm::StringRef rest) {
  size_t length = 1;
  while (length < rest.size() && length < 4 &&
         (static_cast<unsigned char>(rest[length]) & 0xC0) == 0x80)
    ++length;
  return length;
}

uint32_t code_point_of(llvm::StringRef point) {
  const auto *at = reinterpret_cast<const llvm::UTF8 *>(point.data());
  llvm::UTF32 code = 0;
  bool legal = llvm::convertUTF8Sequence(&at, at + point.size(), &code, llvm::strictConversion) ==
               llvm::conversionOK;
  return legal ? code : 0;
}

// Tabs widen to blanks; what a terminal would not show as one column or two becomes `?`, so that
// marks stay below what they mean.
std::vector<Cell> cells_of(llvm::StringRef line) {
  std::vector<Cell> cells;
  for (; !line.empty(); line = line.drop_front(code_point_length(line))) {
    llvm::StringRef point = line.take_front(code_point_length(line));
    int width = llvm::sys::unicode::columnWidthUTF8(point);
    if (point == "\t")
      cells.push_back({std::string(kTabWidth, ' '), kTabWidth});
    else if (width < 0 || !ir::is_visible(code_point_of(point)))
      cells.push_back({"?", 1});
    else
      cells.push_back({point.str(), static_cast<unsigned>(width)});
  }
  return cells;
}

unsigned width_of(llvm::ArrayRef<Cell> cells) {
  unsigned width = 0;
  for (const Cell &cell : cells)
    width += cell.width;
  return width;
}

// The first and the last cell to show, so that the marks are seen and the line fits.
std::pair<size_t, size_t> window(llvm::ArrayRef<Cell> cells, size_t marked, unsigned width) {
  size_t room = std::max<size_t>(width, 20);
  if (width == 0 || width_of(cells) <= room)
    return {0, cells.size()};
  room -= 2 * kCut.size();
  // A third of the room stays in front of the marks.
  size_t first = marked;
  for (size_t used = 0; first > 0 && used + cells[first - 1].width <= room / 3;)
    used += cells[--first].width;
  if (width_of(cells.take_front(std::min(marked + 1, cells.size()))) <= room * 2 / 3)
    first = 0;
  size_t last = first, used = 0;
  while (last < cells.size() && used + cells[last].width <= room)
    used += cells[last++].width;
  while (last == cells.size() && first > 0 && used + cells[first - 1].width <= room)
    used += cells[--first].width;
  return {first, last};
}

} // namespace

std::optional<std::string> SourceCache::resolve(llvm::StringRef path) const {
  std::string mapped = path.str();
  for (const auto &[from, to] : options_.path_map)
    if (ir::starts_with(path, from)) {
      mapped = to + path.drop_front(from.size()).str();
      break;
    }
  llvm::SmallString<256> root, joined, real;
  if (llvm::sys::fs::real_path(options_.root, root))
    return std::nullopt;
  joined = llvm::sys::path::is_absolute(mapped) ? llvm::StringRef() : root.str();
  llvm::sys::path::append(joined, mapped);
  if (llvm::sys::fs::real_path(joined, real) || !is_below(real, root))
    return std::nullopt;
  return std::string(real.str());
}

SourceCache::File &SourceCache::open(const std::string &path) {
  auto [entry, fresh] = files_.try_emplace(path);
  File &file = entry->second;
  std::optional<std::string> real = fresh ? resolve(path) : std::nullopt;
  if (!real)
    return file;
  llvm::sys::fs::file_status status;
  if (llvm::sys::fs::status(*real, status) || !llvm::sys::fs::is_regular_file(status) ||
      status.getSize() > kMaxSourceBytes)
    return file;
  auto bytes =
      llvm::MemoryBuffer::getFile(*real, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!bytes)
    return file;
  file.bytes = std::move(*bytes);
  file.line_starts = index_lines(file.bytes->getBuffer());
  return file;
}

std::optional<std::string> SourceCache::path_of(const ir::Program &program, ir::FileId file) const {
  return resolve(program.strings[program.files[file].path]);
}

std::string SourceCache::shown_path(const ir::Program &program, ir::FileId file) const {
  std::optional<std::string> path = path_of(program, file);
  llvm::SmallString<256> here;
  llvm::StringRef below = path ? llvm::StringRef(*path) : llvm::StringRef();
  bool found = path && !llvm::sys::fs::real_path(".", here) && is_below(below, here) &&
               below.consume_front(here);
  return found ? below.ltrim('/').str() : program.strings[program.files[file].path].str();
}

bool is_traced(const ir::Program &program, ir::FileId file, llvm::StringRef bytes) {
  ir::StringId stated = program.files[file].sha256;
  return !stated.valid() || program.strings[stated].equals_insensitive(sha256_of(bytes));
}

bool SourceCache::changed(const ir::Program &program, ir::FileId id) {
  const ir::SourceFile &stated = program.files[id];
  if (!stated.sha256.valid())
    return false;
  File &file = open(program.strings[stated.path].str());
  if (!file.bytes)
    return false;
  if (file.sha256.empty())
    file.sha256 = sha256_of(file.bytes->getBuffer());
  return !program.strings[stated.sha256].equals_insensitive(file.sha256);
}

std::optional<llvm::StringRef> SourceCache::line(const ir::Program &program,
                                                 const SourcePlace &place) {
  if (!place.file.valid() || place.line == 0 || changed(program, place.file))
    return std::nullopt;
  File &file = open(program.strings[program.files[place.file].path].str());
  if (!file.bytes || place.line > file.line_starts.size())
    return std::nullopt;
  llvm::StringRef rest = file.bytes->getBuffer().drop_front(file.line_starts[place.line - 1]);
  return rest.take_until([](char byte) { return byte == '\n'; }).rtrim('\r');
}

std::optional<llvm::StringRef> SourceCache::contents(const ir::Program &program, ir::FileId id) {
  if (!id.valid() || changed(program, id))
    return std::nullopt;
  File &file = open(program.strings[program.files[id].path].str());
  return file.bytes ? std::optional(file.bytes->getBuffer()) : std::nullopt;
}

void add_changed_sources(Report &report, SourceCache &sources) {
  if (!report.program)
    return;
  std::vector<ir::FileId> seen;
  for (const Diagnostic &diagnostic : report.diagnostics) {
    ir::FileId file = locate(report, diagnostic.first->place).file;
    if (file.valid() && !llvm::is_contained(seen, file))
      seen.push_back(file);
  }
  for (ir::FileId file : seen)
    if (sources.changed(*report.program, file))
      add_finding(report, {.violation =
                               rules::SourceChanged{
                                   report.program->strings[report.program->files[file].path].str()},
                           .place = {Place::Form::File, file.index},
                           .reason = {}});
}

// A piece of a long line around the mark, which is all that can be shown of it: the work for a
// finding does not grow with the line. Columns count code points, from 1.
static llvm::StringRef piece_of(llvm::StringRef line, unsigned &col, unsigned &end_col,
                                unsigned width, bool &cut) {
  const size_t most = 64 * std::max<size_t>(width, 20); // bytes to each side
  auto starts = [&](size_t at) { return (static_cast<unsigned char>(line[at]) & 0xC0) != 0x80; };
  if (width == 0 || line.size() <= 2 * most)
    return line;
  size_t marked = 0;
  for (unsigned point = 1; point < col && marked < line.size(); ++point)
    for (++marked; marked < line.size() && !starts(marked);)
      ++marked;
  size_t first = marked > most ? marked - most : 0, last = std::min(line.size(), marked + most);
  while (first < line.size() && !starts(first))
    ++first;
  while (last < line.size() && !starts(last))
    ++last;
  auto before = static_cast<unsigned>(
      llvm::count_if(line.take_front(first), [](char byte) { return (byte & 0xC0) != 0x80; }));
  cut = first > 0;
  col = col > before ? col - before : col;
  end_col = end_col > before ? end_col - before : end_col;
  return line.slice(first, last);
}

Excerpt excerpt(llvm::StringRef line, unsigned col, unsigned end_col, unsigned width) {
  bool cut = false;
  std::vector<Cell> cells = cells_of(piece_of(line.rtrim(), col, end_col, width, cut));
  size_t marked = std::min<size_t>(col ? col - 1 : 0, cells.size());
  size_t marks_end = std::max<size_t>(end_col > col ? end_col - 1 : marked + 1, marked + 1);
  auto [first, last] = window(cells, marked, width);
  Excerpt shown;
  if (first > 0 || cut)
    shown.line = shown.marks = kCut.str();
  shown.marks = std::string(shown.line.size(), ' ');
  for (size_t at = first; at < last; ++at) {
    shown.line += cells[at].text;
    shown.marks += std::string(cells[at].width, at >= marked && at < marks_end ? '^' : ' ');
  }
  if (last < cells.size())
    shown.line += kCut;
  if (marked >= last)
    shown.marks += '^';
  if (col == 0)
    shown.marks.clear();
  shown.marks.erase(shown.marks.find_last_not_of(' ') + 1);
  return shown;
}

} // namespace spmd::checker
