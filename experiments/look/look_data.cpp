// SPDX-License-Identifier: Apache-2.0
// look_data.cpp: the events of a recorder as data for the script of a page.
#include "experiments/look/look_data.h"

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/look/lesson_texts.h"
#include "framework/check.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

// Returns the axis names of x, w, y and the gradients; none for other arrays.
std::vector<std::string> axes_of(const std::string& array, const Look& look) {
  const bool nchw16c = look.problem.layout == ActivationLayout::nchw16c;
  if (array == "x" || array == "dx") {
    return nchw16c ? std::vector<std::string>{"block", "h", "w", "lane"}
                   : std::vector<std::string>{"n", "c", "h", "w"};
  }
  if (array == "y" || array == "dy") {
    return nchw16c ? std::vector<std::string>{"block", "p", "q", "lane"}
                   : std::vector<std::string>{"n", "k", "p", "q"};
  }
  if (array == "w" || array == "dw") {
    if (!look.problem.weight_format.is_dense()) return {"block", "row", "column", ""};
    return {"k", "c", "r", "s"};
  }
  if (array == "b") return {"k"};
  return {};
}

const char* lies_in(Recorder::Lies lies) {
  return lies == Recorder::Lies::in_memory          ? "memory"
         : lies == Recorder::Lies::in_shared_memory ? "shared memory"
                                                    : "registers";
}

// The inputs of a direction exist before it begins.
Json numbers_of(const Operand& operand) {
  Json out = Json::array();
  for (std::int64_t i = 0; i < operand.values.numel(); ++i) out.push_back(operand.values.at(i));
  return out;
}

Json arrays_of(const Look& look, const Recorder& recorder, const Operands& operands) {
  const OperandSpecs specs = look.problem.operands(look.direction);
  Json out = Json::array();
  for (const Recorder::Array& array : recorder.arrays()) {
    Json entry = {{"name", array.name},
                  {"sizes", array.sizes},
                  {"axes", axes_of(array.name, look)},
                  {"bytes", array.element_bytes},
                  {"lies", lies_in(array.lies)},
                  {"complex", array.complex}};
    for (std::size_t i = 0; i < specs.inputs.size(); ++i) {
      const std::string_view name = specs.inputs[i].name;
      const bool gradient = name == "y";  // the backward pass reads dy, which is like y
      if (array.name == (gradient ? "dy" : name)) entry["values"] = numbers_of(operands.in.at(i));
    }
    out.push_back(std::move(entry));
  }
  return out;
}

// Returns the positions of the stored blocks of block-sparse weights in the matrix [K, C/G R S].
Json blocks_of(const Look& look, const Operands& operands) {
  Json out = Json::array();
  if (look.problem.weight_format.is_dense()) return out;
  const Operand& w =
      look.direction == Direction::backward_weight ? operands.out[0] : operands.in[1];
  const BlockSparseView blocks = w.blocks();
  const Conv2dProblem& z = look.problem;
  for (std::int64_t row = 0; row < z.k / blocks.block_rows; ++row) {
    for (std::int32_t i = blocks.row_begin[row]; i < blocks.row_begin[row + 1]; ++i) {
      const std::int64_t column = blocks.columns[i] * blocks.block_columns;
      out.push_back(cat("block ", i, ": k ", row * blocks.block_rows, " to ",
                        (row + 1) * blocks.block_rows - 1, ", from c ", column / (z.r * z.s),
                        ", r ", column / z.s % z.r, ", s ", column % z.s, " on"));
    }
  }
  return out;
}

// Appends the count of the latest event, one byte: the counter `now` minus its value `before` that
// event.
void append_count(std::string& column, int now, int before) {
  CONVSCOPE_CHECK(now - before < 256, "look",
                  "expected fewer than 256 multiplications between two ", "events, got ",
                  now - before);
  column += static_cast<char>(now - before);
}

void add_events(Json& out, const Recorder& recorder) {
  std::string kind, which, index, value, place, products, scalings;
  int products_before = 0, scalings_before = 0;
  for (const Recorder::Event& event : recorder.events()) {
    kind += static_cast<char>(event.kind);
    which += static_cast<char>(event.which);
    append_little_endian(index, static_cast<std::uint64_t>(event.index), 2);
    append_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(event.value)), 4);
    place += static_cast<char>(event.place);
    append_count(products, event.products, products_before);
    append_count(scalings, event.scalings, scalings_before);
    products_before = event.products;
    scalings_before = event.scalings;
  }
  out["kind"] = base64(kind);
  out["which"] = base64(which);
  out["index"] = base64(index);
  out["value"] = base64(value);
  out["place"] = base64(place);
  out["products"] = base64(products);
  out["scalings"] = base64(scalings);
}

void add_sources(Json& out, const Recorder& recorder) {
  Json sources = Json::array(), places = Json::array();
  for (const Recorder::Place& place : recorder.places()) {
    std::size_t at = 0;
    while (at < sources.size() && sources[at]["file"] != place.file) ++at;
    if (at == sources.size()) {
      std::string text;
      for (const LessonText& lesson : lesson_texts()) {
        if (lesson.file == place.file) text = lesson.text;
      }
      sources.push_back({{"file", place.file}, {"text", text}});
    }
    places.push_back({at, place.line});
  }
  out["sources"] = std::move(sources);
  out["places"] = std::move(places);
}

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      const auto byte =
          i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : std::uint8_t{0};
      three = three << 8 | byte;
    }
    for (std::size_t j = 0; j < 4; ++j) {
      const bool there = i + j <= bytes.size();
      out += there ? kLetters[three >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

std::string look_data(const Look& look, const Recorder& recorder, const Operands& operands) {
  Json out = {{"lesson", look.lesson},
              {"problem", look.problem.text()},
              {"direction", std::string(name_of(look.direction))},
              {"steps", recorder.steps()},
              {"textbook", look.textbook},
              {"all_products", look.products},
              {"all_scalings", look.scalings},
              {"arrays", arrays_of(look, recorder, operands)},
              {"blocks", blocks_of(look, operands)}};
  add_sources(out, recorder);
  add_events(out, recorder);
  std::string text = out.dump();
  // The text "</script" is escaped, because it would end the script of the page anywhere.
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at)) {
    text.replace(at, 1, "\\u003c");
  }
  return "const data = " + text + ";\n";
}

}  // namespace convscope
