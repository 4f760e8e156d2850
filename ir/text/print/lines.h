// The lines of a text, indented by the blocks around them.
#pragma once

#include <string>
#include <string_view>

namespace spmd::ir {

class TextLines {
public:
  void add(std::string_view line) {
    text_.append(indent_ * 2, ' ');
    text_ += line;
    text_ += '\n';
  }
  void open(std::string_view line) { // a block, which ends with close()
    add(line);
    ++indent_;
  }
  void close(std::string_view line) {
    --indent_;
    add(line);
  }
  std::string take() { return std::move(text_); }

private:
  std::string text_;
  unsigned indent_ = 0;
};

} // namespace spmd::ir
