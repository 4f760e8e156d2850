// Rows that move elements, against index arithmetic: where each element of a result comes from.
#include "runtime/kernels/kernel.h"

#include "rules/ops/registry.h"
#include "tests/unit/catch.h"
#include "tests/unit/row_sample.h"

#include <functional>

namespace spmd::test {
namespace {

using runtime::Residue;

// An element of an operand; none: the fill.
struct Origin {
  int arg = -1;
  Dims at;
};
using Source = std::function<Origin(unsigned result, const Dims &at)>;

struct Case {
  const char *inputs, *text;
  Source source;
  std::vector<Dims> results = {}; // where rules do not tell them
};

Source same(std::function<Dims(const Dims &)> at) {
  return [at](unsigned, const Dims &place) { return Origin{0, at(place)}; };
}
Origin in(int arg, Dims at) { return {arg, std::move(at)}; }

Dims row_major(const Dims &at, const Dims &from, const Dims &to) {
  int64_t flat = 0;
  for (size_t d = 0; d < from.size(); ++d)
    flat = flat * from[d] + at[d];
  Dims made(to.size());
  for (size_t d = to.size(); d-- > 0; flat /= to[d])
    made[d] = flat % to[d];
  return made;
}

const Case kCases[] = {
    {"f32[4, 6]", "%r = reshape %0 { shape = [3, 8] }", same([](const Dims &i) {
       return row_major(i, {3, 8}, {4, 6});
     })},
    {"f32[4, 6]; f32[2, 12]", "%r = view_as %0, %1", same([](const Dims &i) {
       return row_major(i, {2, 12}, {4, 6});
     })},
    {"f32[2, 3, 4]", "%r = flatten %0 { start_dim = 1 }", same([](const Dims &i) {
       return row_major(i, {2, 12}, {2, 3, 4});
     })},
    {"f32[2, 1, 3]", "%r = squeeze %0 { dim = 1 }", same([](const Dims &i) {
       return Dims{i[0], 0, i[1]};
     })},
    {"f32[2, 3, 4]", "%r = permute_dims %0 { dims = [2, 0, 1] }", same([](const Dims &i) {
       return Dims{i[1], i[2], i[0]};
     })},
    {"f32[2, 3, 4]", "%r = transpose %0 { dim0 = -1, dim1 = 0 }", same([](const Dims &i) {
       return Dims{i[2], i[1], i[0]};
     })},
    {"f32[5, 3]", "%r = t %0", same([](const Dims &i) {
       return Dims{i[1], i[0]};
     })},
    {"f32[2, 3, 4]", "%r = mT %0", same([](const Dims &i) {
       return Dims{i[0], i[2], i[1]};
     })},
    {"f32[2, 3, 4]", "%r = movedim %0 { source = 0, destination = 2 }", same([](const Dims &i) {
       return Dims{i[2], i[0], i[1]};
     })},
    {"f32[70, 130]", "%r = t %0", same([](const Dims &i) {
       return Dims{i[1], i[0]};
     })},
    {"f32[3, 1]", "%r = expand %0 { size = [2, 3, 4] }", same([](const Dims &i) {
       return Dims{i[1], 0};
     })},
    {"f32[1, 3]; f32[2, 4, 3]", "%r = expand_as %0, %1", same([](const Dims &i) {
       return Dims{0, i[2]};
     })},
    {"f32[3]", "%r = jax.broadcast_in_dim %0 { shape = [3, 2], broadcast_dimensions = [0] }",
     same([](const Dims &i) { return Dims{i[0]}; })},
    {"f32[2, 3]", "%r = repeat %0 { repeats = [2, 1, 3] }", same([](const Dims &i) {
       return Dims{i[1], i[2] % 3};
     })},
    {"f32[2, 3]",
     "%r = tile %0 { dims = [2] }",
     same([](const Dims &i) {
       return Dims{i[0], i[1] % 3};
     }),
     {{2, 6}}},
    {"f32[2, 3]", "%r = repeat_interleave %0 { repeats = 2, dim = 1 }", same([](const Dims &i) {
       return Dims{i[0], i[1] / 2};
     })},
    {"f32[2, 3]",
     "%r = repeat_interleave %0 { repeats = 2 }",
     same([](const Dims &i) {
       return Dims{i[0] / 6, i[0] / 2 % 3};
     }),
     {{12}}},
    {"f32[2, 3]; f32[2, 2]; f32[2, 1]", "%r = cat [%0, %1, %2] { dim = -1 }",
     [](unsigned, const Dims &i) {
       return i[1] < 3 ? in(0, i) : i[1] < 5 ? in(1, {i[0], i[1] - 3}) : in(2, {i[0], i[1] - 5});
     }},
    {"f32[3]; f32[2]",
     "%r = hstack [%0, %1]",
     [](unsigned, const Dims &i) { return i[0] < 3 ? in(0, i) : in(1, {i[0] - 3}); },
     {{5}}},
    {"f32[3]; f32[3]",
     "%r = vstack [%0, %1]",
     [](unsigned, const Dims &i) { return in(static_cast<int>(i[0]), {i[1]}); },
     {{2, 3}}},
    {"f32[3]; f32[3]",
     "%r = dstack [%0, %1]",
     [](unsigned, const Dims &i) { return in(static_cast<int>(i[2]), {i[1]}); },
     {{1, 3, 2}}},
    {"f32[3]; f32[3, 2]",
     "%r = column_stack [%0, %1]",
     [](unsigned, const Dims &i) {
       return i[1] == 0 ? in(0, {i[0]}) : in(1, {i[0], i[1] - 1});
     },
     {{3, 3}}},
    {"f32[2]; f32[3]",
     "%r = cartesian_prod %0, %1",
     [](unsigned, const Dims &i) { return i[1] == 0 ? in(0, {i[0] / 3}) : in(1, {i[0] % 3}); },
     {{6, 2}}},
    {"f32[2, 3]; f32[2, 3]", "%r = stack [%0, %1] { dim = 1 }",
     [](unsigned, const Dims &i) {
       return in(static_cast<int>(i[1]), {i[0], i[2]});
     }},
    {"f32[2, 3]; f32[1, 2]",
     "%r = block_diag [%0, %1]",
     [](unsigned, const Dims &i) {
       return i[0] < 2 && i[1] < 3     ? in(0, i)
              : i[0] == 2 && i[1] >= 3 ? in(1, {0, i[1] - 3})
                                       : Origin();
     },
     {{3, 5}}},
    {"f32[2, 5]", "%r, %s = split %0 { sizes = [2, 3], dim = 1 }",
     [](unsigned k, const Dims &i) {
       return in(0, {i[0], i[1] + (k ? 2 : 0)});
     }},
    {"f32[5, 2]", "%r, %s = chunk %0 { chunks = 2 }",
     [](unsigned k, const Dims &i) {
       return in(0, {i[0] + (k ? 3 : 0), i[1]});
     }},
    {"f32[2, 3]", "%r, %s, %t = unbind %0 { dim = 1 }",
     [](unsigned k, const Dims &i) {
       return in(0, {i[0], k});
     }},
    {"f32[8, 3]", "%r = slice %0 { dim = 0, start = 1, end = 7, step = 2 }",
     same([](const Dims &i) {
       return Dims{1 + 2 * i[0], i[1]};
     })},
    {"f32[8, 3]", "%r = slice %0 { dim = 0, start = -3 }", same([](const Dims &i) {
       return Dims{5 + i[0], i[1]};
     })},
    {"f32[4, 5]", "%r = narrow %0 { dim = 1, start = 1, length = 3 }", same([](const Dims &i) {
       return Dims{i[0], i[1] + 1};
     })},
    {"f32[4, 5]", "%r = select %0 { dim = 0, index = -1 }", same([](const Dims &i) {
       return Dims{3, i[0]};
     })},
    {"f32[4, 5]",
     "%r = jax.slice %0 { start_indices = [1, 0], limit_indices = [4, 5], strides = [2, 1] }",
     same([](const Dims &i) {
       return Dims{1 + 2 * i[0], i[1]};
     })},
    {"f32[2, 3]",
     "%r = slice_backward %0 { input_sizes = [6, 3], dim = 0, start = 1, end = 5, step = 2 }",
     same([](const Dims &i) {
       return i[0] % 2 && i[0] < 5 ? Dims{i[0] / 2, i[1]} : Dims{-1, 0};
     })},
    {"f32[3]", "%r = select_backward %0 { input_sizes = [6, 3], dim = 0, index = 2 }",
     same([](const Dims &i) { return i[0] == 2 ? Dims{i[1]} : Dims{-1}; })},
    {"f32[4, 3]; f32[2, 3]", "%r = slice_scatter %0, %1 { dim = 0, start = 1, end = 3 }",
     [](unsigned, const Dims &i) {
       return i[0] == 1 || i[0] == 2 ? in(1, {i[0] - 1, i[1]}) : in(0, i);
     }},
    {"f32[4, 3]; f32[4]", "%r = select_scatter %0, %1 { dim = 1, index = 1 }",
     [](unsigned, const Dims &i) { return i[1] == 1 ? in(1, {i[0]}) : in(0, i); }},
    {"f32[3, 4]; f32[3]", "%r = diagonal_scatter %0, %1 { offset = 1 }",
     [](unsigned, const Dims &i) { return i[1] == i[0] + 1 ? in(1, {i[0]}) : in(0, i); }},
    {"f32[2, 3, 4]", "%r = flip %0 { dims = [0, 2] }", same([](const Dims &i) {
       return Dims{1 - i[0], i[1], 3 - i[2]};
     })},
    {"f32[2, 3]", "%r = fliplr %0", same([](const Dims &i) {
       return Dims{i[0], 2 - i[1]};
     })},
    {"f32[5]", "%r = rev %0 { dimensions = [0] }",
     same([](const Dims &i) { return Dims{4 - i[0]}; })},
    {"f32[4, 5]", "%r = roll %0 { shifts = [1, -2], dims = [0, 1] }", same([](const Dims &i) {
       return Dims{(i[0] + 3) % 4, (i[1] + 2) % 5};
     })},
    {"f32[4, 5]", "%r = roll %0 { shifts = 3 }", same([](const Dims &i) {
       int64_t flat = (i[0] * 5 + i[1] + 17) % 20;
       return Dims{flat / 5, flat % 5};
     })},
    {"f32[5]", "%r = fft_fftshift %0", same([](const Dims &i) { return Dims{(i[0] + 3) % 5}; })},
    {"f32[5]", "%r = fft_ifftshift %0", same([](const Dims &i) { return Dims{(i[0] + 2) % 5}; })},
    {"f32[2, 3]",
     "%r = rot90 %0 { k = 1, dims = [0, 1] }",
     same([](const Dims &i) {
       return Dims{i[1], 2 - i[0]};
     }),
     {{3, 2}}},
    {"f32[2, 3]", "%r = rot90 %0 { k = 2, dims = [0, 1] }", same([](const Dims &i) {
       return Dims{1 - i[0], 2 - i[1]};
     })},
    {"f32[2, 3]",
     "%r = rot90 %0 { k = -1, dims = [0, 1] }",
     same([](const Dims &i) {
       return Dims{1 - i[1], i[0]};
     }),
     {{3, 2}}},
    {"f32[2, 3]", "%r = constant_pad %0 { pad = [1, 2, 0, 1] }", same([](const Dims &i) {
       return i[0] < 2 && i[1] >= 1 && i[1] < 4 ? Dims{i[0], i[1] - 1} : Dims{-1, 0};
     })},
    {"f32[2, 5]", "%r = constant_pad %0 { pad = [-1, -2] }", same([](const Dims &i) {
       return Dims{i[0], i[1] + 1};
     })},
    {"f32[2, 3]; f32[]", "%r = jax.pad %0, %1 { padding_config = [[1, 0, 0], [0, 1, 1]] }",
     [](unsigned, const Dims &i) {
       return i[0] > 0 && i[1] % 2 == 0 && i[1] < 6 ? in(0, {i[0] - 1, i[1] / 2}) : in(1, {});
     }},
    {"f32[2, 4]", "%r = reflection_pad %0 { pad = [2, 1] }", same([](const Dims &i) {
       int64_t j = std::abs(i[1] - 2);
       return Dims{i[0], j > 3 ? 6 - j : j};
     })},
    {"f32[2, 4]", "%r = replication_pad %0 { pad = [2, 3] }", same([](const Dims &i) {
       return Dims{i[0], std::clamp<int64_t>(i[1] - 2, 0, 3)};
     })},
    {"f32[2, 4]", "%r = circular_pad %0 { pad = [2, 1] }", same([](const Dims &i) {
       return Dims{i[0], (i[1] + 2) % 4};
     })},
    {"f32[2, 4, 3]", "%r = tril %0 { diagonal = 1 }", same([](const Dims &i) {
       return i[2] <= i[1] + 1 ? i : Dims{-1, 0, 0};
     })},
    {"f32[4, 5]", "%r = triu %0 { diagonal = -1 }", same([](const Dims &i) {
       return i[1] >= i[0] - 1 ? i : Dims{-1, 0};
     })},
    {"f32[3, 2, 4]",
     "%r = diagonal %0 { offset = 1, dim1 = 0, dim2 = 2 }",
     same(
         [](const Dims &i) {
           return Dims{i[1], i[0], i[1] + 1};
         }),
     {{2, 3}}},
    {"f32[3]",
     "%r = diag %0 { diagonal = -1 }",
     same([](const Dims &i) { return i[0] == i[1] + 1 ? Dims{i[1]} : Dims{-1}; }),
     {{4, 4}}},
    {"f32[2, 3]",
     "%r = diag_embed %0",
     same(
         [](const Dims &i) {
           return i[1] == i[2] ? Dims{i[0], i[1]} : Dims{-1, 0};
         }),
     {{2, 3, 3}}},
    {"f32[2, 7]", "%r = unfold %0 { dim = 1, size = 3, step = 2 }", same([](const Dims &i) {
       return Dims{i[0], 2 * i[1] + i[2]};
     })},
    {"f32[12]", "%r = as_strided %0 { size = [2, 3], stride = [1, 4], storage_offset = 2 }",
     same([](const Dims &i) { return Dims{2 + i[0] + 4 * i[1]}; })},
    {"f32[1, 8, 2, 3]", "%r = pixel_shuffle %0 { upscale_factor = 2 }", same([](const Dims &i) {
       return Dims{0, i[1] * 4 + i[2] % 2 * 2 + i[3] % 2, i[2] / 2, i[3] / 2};
     })},
    {"f32[1, 2, 4, 6]", "%r = pixel_unshuffle %0 { downscale_factor = 2 }", same([](const Dims &i) {
       return Dims{0, i[1] / 4, i[2] * 2 + i[1] / 2 % 2, i[3] * 2 + i[1] % 2};
     })},
    {"f32[2, 6, 3]", "%r = channel_shuffle %0 { groups = 2 }", same([](const Dims &i) {
       return Dims{i[0], i[1] % 2 * 3 + i[1] / 2, i[2]};
     })},
    {"f32[3]; f32[4]", "%r, %s = meshgrid %0, %1",
     [](unsigned k, const Dims &i) { return in(static_cast<int>(k), {i[k]}); }},
    {"f32[4, 5]; i64[]; i64[]", "%r = dynamic_slice %0, [%1, %2] { slice_sizes = [1, 5] }",
     nullptr},
    {"f32[4, 2]; f32[2, 2]; i64[]", "%r = dynamic_update_slice %0, %1, [%2]", nullptr},
};

template <class T> T element(const Tensor &tensor, const Dims &at) {
  size_t flat = 0;
  for (size_t d = 0; d < at.size(); ++d)
    flat = flat * static_cast<size_t>(tensor.dims[d]) + static_cast<size_t>(at[d]);
  return tensor.of<T>()[flat];
}

template <class T> void compare(const Case &each, Domain domain) {
  INFO(each.text);
  Statement statement(each.inputs, each.text, each.results);
  std::mt19937 random(3);
  std::vector<Tensor> args = statement.draw(random, domain, 1);
  std::vector<Tensor> results = statement.run(args, domain);
  INFO(statement.problem());
  REQUIRE(!results.empty());
  for (unsigned k = 0; each.source && k < results.size(); ++k) {
    Dims at(results[k].dims.size(), 0);
    for (int64_t i = 0; i < results[k].size(); ++i) {
      Origin origin = each.source(k, at);
      bool fill = origin.arg < 0 || (!origin.at.empty() && origin.at[0] < 0);
      T want = fill ? T(0) : element<T>(args[static_cast<size_t>(origin.arg)], origin.at);
      REQUIRE((results[k].of<T>()[static_cast<size_t>(i)] == want));
      for (size_t d = at.size(); d-- > 0;)
        if (++at[d] < results[k].dims[d])
          break;
        else
          at[d] = 0;
    }
  }
}

} // namespace

TEST_CASE("layout rows move each element to its place") {
  for (const Case &each : kCases)
    compare<double>(each, Domain::Declared);
}

TEST_CASE("layout rows move residues like numbers") {
  for (const Case &each : kCases)
    compare<Residue>(each, Domain::Field);
}

// The operand of the row that an input is, and its place in a list.
static std::pair<std::string, int> operand_of(const Case &each, size_t input) {
  std::string text = each.text;
  size_t name = text.find("%" + std::to_string(input), text.find('='));
  size_t list = text.find('[', text.find('='));
  bool in_list = list < name && text.find(']', list) > name && text.find("dynamic") == text.npos;
  bool joins = in_list || text.find("cartesian_prod") != text.npos;
  if (joins)
    return {"a", static_cast<int>(input)};
  bool of_gradient = text.find("_backward") != text.npos;
  const char *second = text.find("pad") != text.npos ? "v"
                       : text.find("scatter") != text.npos || text.find("update") != text.npos
                           ? "s"
                           : "b";
  return {input == 0 ? of_gradient ? "g" : "a" : second, -1};
}

TEST_CASE("gradients of layout rows put the elements back") {
  std::mt19937 random(4);
  unsigned count = 0;
  for (const Case &each : kCases) {
    std::string text = each.text;
    Statement forward(each.inputs, text, each.results);
    for (size_t i = 0; i < forward.arg_count(); ++i) {
      auto [operand, member] = operand_of(each, i);
      bool shape_only = operand == "b" && text.find("meshgrid") == text.npos;
      if (shape_only || forward.dtype(i) == ir::DType::I64)
        continue;
      size_t first = text.find('=') + 2, end = text.find(' ', first);
      std::string rest = text.substr(end + 1);
      if (member >= 0 && rest.find('}') != rest.npos)
        rest.insert(rest.find('}') - 1, ", member = " + std::to_string(member));
      else if (member >= 0)
        rest += " { member = " + std::to_string(member) + " }";
      INFO(text << " by " << operand);
      Statement backward = gradient_statement(forward, each.inputs, text.substr(first, end - first),
                                              operand, rest, i);
      check_adjoint(forward, backward, i, random, 1);
      ++count;
    }
  }
  CHECK(count > 60);
}

TEST_CASE("dynamic slices begin where their operands say") {
  Statement slice("f32[4, 5]; i64[]; i64[]",
                  "%r = dynamic_slice %0, [%1, %2] { slice_sizes = [2, 5] }");
  std::mt19937 random(1);
  std::vector<Tensor> args = slice.draw(random, Domain::F64);
  args[1].of<double>()[0] = 3; // moved so that it fits
  args[2].of<double>()[0] = 0;
  std::vector<Tensor> results = slice.run(args, Domain::F64);
  REQUIRE(results.size() == 1);
  CHECK(results[0].of<double>()[0] == args[0].of<double>()[10]);
  CHECK(results[0].of<double>()[9] == args[0].of<double>()[19]);
}

TEST_CASE("a pad is filled with its value") {
  Statement pad("f32[2]", "%r = constant_pad %0 { pad = [1, 1], value = 2.5 }");
  std::mt19937 random(1);
  std::vector<Tensor> args = pad.draw(random, Domain::F64);
  std::vector<Tensor> results = pad.run(args, Domain::F64);
  REQUIRE(results.size() == 1);
  CHECK(results[0].of<double>() ==
        std::vector<double>{2.5, args[0].of<double>()[0], args[0].of<double>()[1], 2.5});
}

TEST_CASE("complex numbers and pairs of their parts are each other's views") {
  Statement pairs("c64[3]", "%r = view_as_real %0");
  std::mt19937 random(1);
  std::vector<Tensor> args = pairs.draw(random, Domain::F64);
  std::vector<Tensor> results = pairs.run(args, Domain::F64);
  INFO(pairs.problem());
  REQUIRE(results.size() == 1);
  CHECK(results[0].of<double>()[3] == args[0].of<runtime::Complex>()[1].imag());
  Statement back("f32[3, 2]", "%r = view_as_complex %0");
  std::vector<Tensor> again = back.run(results, Domain::F64);
  INFO(back.problem());
  REQUIRE(again.size() == 1);
  CHECK(again[0].of<runtime::Complex>() == args[0].of<runtime::Complex>());
}

} // namespace spmd::test
