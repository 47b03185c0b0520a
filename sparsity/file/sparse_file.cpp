// SPDX-License-Identifier: Apache-2.0
// sparse_file.cpp: a trained pruned network without its pruned weights.
#include "sparsity/file/sparse_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/int_math.h"
#include "sparsity/mask.h"

namespace convscope {
namespace {

using Json = nlohmann::json;

constexpr const char* kOperation = "sparse model";
constexpr const char* kFormat = "convscope-sparse-1";

template <class... Words>
[[noreturn]] void damaged(const std::string& path, const Words&... words) {
  fail(ErrorKind::kData, kOperation, cat(path, ": ", words...));
}

// The matrix [rows, columns] of a weight, cut into rectangular blocks ("pieces").
struct Grid {
  std::int64_t rows = 0, columns = 0;              // of the matrix
  std::int64_t piece_rows = 1, piece_columns = 1;  // of a piece
  std::int64_t down() const { return ceil_div(rows, piece_rows); }
  std::int64_t across() const { return ceil_div(columns, piece_columns); }
  std::int64_t pieces() const { return down() * across(); }

  // Calls visit(index in the matrix) for each element of a piece.
  template <class Visit>
  void each_of(std::int64_t piece, const Visit& visit) const {
    const std::int64_t top = piece / across() * piece_rows;
    const std::int64_t left = piece % across() * piece_columns;
    for (std::int64_t i = top; i < std::min(top + piece_rows, rows); ++i) {
      for (std::int64_t j = left; j < std::min(left + piece_columns, columns); ++j) {
        visit(i * columns + j);
      }
    }
  }
};

Grid grid_of(const Shape& shape) {
  const std::int64_t rows = shape.rank() > 0 ? shape[0] : 1;
  return {.rows = rows, .columns = rows > 0 ? shape.numel() / rows : 0};
}

// Returns for each piece whether the mask keeps it. Returns nullopt if the mask keeps some elements
// of a piece and prunes others.
std::optional<std::vector<bool>> kept_pieces(const Grid& grid, const float* keep) {
  std::vector<bool> out(static_cast<std::size_t>(grid.pieces()));
  for (std::int64_t piece = 0; piece < grid.pieces(); ++piece) {
    std::int64_t in = 0, of = 0;
    grid.each_of(piece, [&](std::int64_t at) {
      in += keep[at] != 0 ? 1 : 0;
      ++of;
    });
    if (in != 0 && in != of) return std::nullopt;
    out[static_cast<std::size_t>(piece)] = in != 0;
  }
  return out;
}

enum class Index { dense, bits, columns };
constexpr const char* kIndexNames[] = {"dense", "bits", "columns"};

struct SparseForm {
  Grid grid;
  Index index = Index::dense;
  std::vector<bool> kept;  // pieces
  std::int64_t values = 0;
  std::int64_t bytes = 0;  // of values and index
};

// The candidates for the piece size include those of all pruning methods: single weights, groups of
// outputs, whole rows.
SparseForm smallest_form(const Shape& shape, const float* keep) {
  SparseForm best;
  best.grid = grid_of(shape);
  best.bytes = 4 * shape.numel();
  Grid grid = best.grid;
  std::int64_t values = 0;
  for (std::int64_t i = 0; i < shape.numel(); ++i) values += keep[i] != 0 ? 1 : 0;
  for (const std::int64_t down : {1, 2, 4, 8, 16, 32, 64}) {
    for (const std::int64_t across : {std::int64_t{1}, std::int64_t{2}, std::int64_t{4},
                                      std::int64_t{8}, std::int64_t{16}, grid.columns}) {
      if (down > grid.rows && down > 1) continue;
      if (across > grid.columns || across < 1) continue;
      grid.piece_rows = down;
      grid.piece_columns = across;
      auto kept = kept_pieces(grid, keep);
      if (!kept) continue;
      const auto count = std::count(kept->begin(), kept->end(), true);
      const std::int64_t bits = ceil_div(grid.pieces(), std::int64_t{8});
      const std::int64_t columns = 4 * (grid.down() + 1 + count);
      const std::int64_t bytes = 4 * values + std::min(bits, columns);
      if (bytes >= best.bytes) continue;
      best = {grid, bits <= columns ? Index::bits : Index::columns, std::move(*kept), values,
              bytes};
    }
  }
  return best;
}

Tensor packed_bits(const std::vector<bool>& kept) {
  const auto count = static_cast<std::int64_t>(kept.size());
  const Tensor out = Tensor::zeros({ceil_div(count, std::int64_t{8})}, DType::u8);
  auto* const bytes = static_cast<std::uint8_t*>(out.raw_data());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i]) bytes[i / 8] = static_cast<std::uint8_t>(bytes[i / 8] | 1u << i % 8);
  }
  return out;
}

void add_sparse(const std::string& name, const SparseForm& form, const Tensor& weight,
                SafetensorsFile& out) {
  const Grid& grid = form.grid;
  const Tensor values = Tensor::empty({form.values});
  std::int64_t next = 0, pieces = 0;
  const Tensor row_begin = Tensor::zeros({grid.down() + 1}, DType::i32);
  std::vector<std::int32_t> columns;
  for (std::int64_t piece = 0; piece < grid.pieces(); ++piece) {
    if (!form.kept[static_cast<std::size_t>(piece)]) continue;
    grid.each_of(piece,
                 [&](std::int64_t at) { values.data<float>()[next++] = weight.data<float>()[at]; });
    columns.push_back(static_cast<std::int32_t>(piece % grid.across()));
    ++pieces;
    for (std::int64_t row = piece / grid.across() + 1; row <= grid.down(); ++row) {
      row_begin.data<std::int32_t>()[row] = static_cast<std::int32_t>(pieces);
    }
  }
  out.tensors.push_back({name + ".values", values});
  if (form.index == Index::bits) {
    out.tensors.push_back({name + ".bits", packed_bits(form.kept)});
    return;
  }
  const Tensor list = Tensor::empty({pieces}, DType::i32);
  std::copy(columns.begin(), columns.end(), list.data<std::int32_t>());
  out.tensors.push_back({name + ".row_begin", row_begin});
  out.tensors.push_back({name + ".columns", list});
}

struct MaskedWeight {
  std::string name;  // "c1.weight"
  const Mask* mask;
};
std::vector<MaskedWeight> masked_weights(Module& network) {
  std::vector<MaskedWeight> out;
  for (const NamedModule& part : network.modules()) {
    const auto* const mask = dynamic_cast<const Mask*>(part.module);
    if (mask == nullptr) continue;
    const std::size_t dot = part.name.rfind('.');
    out.push_back(
        {dot == std::string::npos ? "weight" : part.name.substr(0, dot) + ".weight", mask});
  }
  return out;
}

// Returns parameters and buffers without masks.
NamedTensors tensors_of(const Module& network) {
  NamedTensors out;
  for (const NamedParameter& p : network.parameters()) {
    out.push_back({p.name, p.variable.value()});
  }
  for (const NamedTensor& buffer : network.buffers()) {
    if (!belongs_to_mask(buffer.name)) out.push_back(buffer);
  }
  return out;
}

// Returns the weight with pruned elements set to 0, because the file does not store the mask.
Tensor masked(const Tensor& weight, const Mask& mask) {
  const Tensor out = weight.clone(), keep = mask.keep().to(Device{});
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    if (keep.data<float>()[i] == 0) out.data<float>()[i] = 0;
  }
  return out;
}

using Found = std::map<std::string, Tensor>;

// Removes the tensor from the list and returns it.
Tensor taken(Found& found, const std::string& path, const std::string& name, DType dtype,
             const Shape& shape) {
  const auto at = found.find(name);
  if (at == found.end()) damaged(path, "expected a tensor '", name, "', got none");
  const Tensor tensor = at->second;
  if (tensor.dtype() != dtype || !(tensor.shape() == shape)) {
    damaged(path, "expected '", name, "' to be ", name_of(dtype), shape, ", got ",
            name_of(tensor.dtype()), tensor.shape());
  }
  found.erase(at);
  return tensor;
}

Json facts_in(const SafetensorsFile& file, const std::string& path) {
  const auto text = file.metadata.find("sparse");
  const Json facts =
      text == file.metadata.end() ? Json() : Json::parse(text->second, nullptr, false);
  if (!facts.is_object()) {
    damaged(path, "expected a JSON object 'sparse' in the metadata, got ",
            text == file.metadata.end() ? "none" : "other text");
  }
  return facts;
}

struct StoredForm {
  Grid grid;
  bool bits = true;
};
StoredForm stored_form(const Json& facts, const std::string& path, const std::string& name,
                       const Shape& shape) {
  const std::vector<std::int64_t> sizes(shape.begin(), shape.end());
  const auto part = [&](const char* key) {
    return facts.is_object() ? facts.value(key, Json()) : Json();
  };
  const auto dumped = [&] {
    return facts.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 200);
  };
  if (part("shape") != Json(sizes)) {
    damaged(path, "expected '", name, "' of shape ", shape, " because the config makes it so, got ",
            dumped());
  }
  StoredForm out{.grid = grid_of(shape)};
  const Json piece = part("piece");
  const auto is_size = [](const Json& size, std::int64_t most) {
    return size.is_number_integer() && size.get<std::int64_t>() >= 1 &&
           size.get<std::int64_t>() <= most;
  };
  const Json index = part("index");
  if (!piece.is_array() || piece.size() != 2 ||
      !is_size(piece[0], std::max<std::int64_t>(1, out.grid.rows)) ||
      !is_size(piece[1], out.grid.columns) || (index != "bits" && index != "columns")) {
    damaged(path, "expected of '", name,
            "' pieces that fit its matrix and the index bits or columns, got ", dumped());
  }
  out.grid.piece_rows = piece[0].get<std::int64_t>();
  out.grid.piece_columns = piece[1].get<std::int64_t>();
  out.bits = index == "bits";
  return out;
}

std::vector<bool> kept_by_bits(const Grid& grid, Found& found, const std::string& path,
                               const std::string& name) {
  const std::int64_t bytes = ceil_div(grid.pieces(), std::int64_t{8});
  const Tensor packed = taken(found, path, name + ".bits", DType::u8, Shape{bytes});
  const auto* const from = static_cast<const std::uint8_t*>(packed.raw_data());
  std::vector<bool> kept(static_cast<std::size_t>(grid.pieces()));
  for (std::size_t i = 0; i < static_cast<std::size_t>(8 * bytes); ++i) {
    const bool on = (from[i / 8] >> i % 8 & 1) != 0;
    if (i < kept.size()) {
      kept[i] = on;
    } else if (on) {
      damaged(path, "expected zeros after the last of ", kept.size(), " bits of '", name,
              "', got a one");
    }
  }
  return kept;
}

std::vector<bool> kept_by_columns(const Grid& grid, Found& found, const std::string& path,
                                  const std::string& name) {
  const Tensor begin = taken(found, path, name + ".row_begin", DType::i32, Shape{grid.down() + 1});
  const auto* const rows = begin.data<std::int32_t>();
  for (std::int64_t row = 0; row <= grid.down(); ++row) {
    const std::int64_t least = row == 0 ? 0 : rows[row - 1];
    const std::int64_t most = row == 0 ? 0 : least + grid.across();
    if (rows[row] < least || rows[row] > most) {
      damaged(path, "expected '", name, ".row_begin' from 0 with at most ", grid.across(),
              " pieces in a row, got ", rows[row], " at ", row);
    }
  }
  const Tensor list =
      taken(found, path, name + ".columns", DType::i32, Shape{std::int64_t{rows[grid.down()]}});
  const auto* const columns = list.data<std::int32_t>();
  std::vector<bool> kept(static_cast<std::size_t>(grid.pieces()));
  for (std::int64_t row = 0; row < grid.down(); ++row) {
    for (std::int64_t i = rows[row]; i < rows[row + 1]; ++i) {
      if (columns[i] < 0 || columns[i] >= grid.across() ||
          (i > rows[row] && columns[i] <= columns[i - 1])) {
        damaged(path, "expected '", name, ".columns' to ascend below ", grid.across(),
                " in each row, got ", columns[i], " at ", i);
      }
      kept[static_cast<std::size_t>(row * grid.across() + columns[i])] = true;
    }
  }
  return kept;
}

// Fills a weight and its mask.
void load_weight(const StoredForm& form, Found& found, const std::string& path,
                 const std::string& name, const Tensor& weight, const Mask& mask) {
  const std::vector<bool> kept = form.bits ? kept_by_bits(form.grid, found, path, name)
                                           : kept_by_columns(form.grid, found, path, name);
  const Tensor dense = Tensor::zeros(weight.shape()), keep = Tensor::zeros(weight.shape());
  std::int64_t count = 0;
  for (std::size_t piece = 0; piece < kept.size(); ++piece) {
    if (!kept[piece]) continue;
    form.grid.each_of(static_cast<std::int64_t>(piece), [&](std::int64_t at) {
      keep.data<float>()[at] = 1;
      ++count;
    });
  }
  const Tensor values = taken(found, path, name + ".values", DType::f32, Shape{count});
  std::int64_t next = 0;
  for (std::size_t piece = 0; piece < kept.size(); ++piece) {
    if (!kept[piece]) continue;
    form.grid.each_of(static_cast<std::int64_t>(piece), [&](std::int64_t at) {
      dense.data<float>()[at] = values.data<float>()[next++];
    });
  }
  weight.copy_from(dense);
  mask.set_keep(keep);
}

}  // namespace

SafetensorsFile to_sparse_file(Module& network) {
  SafetensorsFile out;
  Json facts = Json::object();
  std::map<std::string, const Mask*> masks;
  for (const MaskedWeight& one : masked_weights(network)) masks.emplace(one.name, one.mask);
  if (masks.empty()) {
    fail(
        ErrorKind::kConfig, kOperation,
        "expected a network with masks, because the file leaves out what they do, got one without");
  }
  for (const NamedTensor& tensor : tensors_of(network)) {
    const Tensor here = tensor.tensor.to(Device{});
    const auto mask = masks.find(tensor.name);
    SparseForm form;
    if (mask != masks.end()) {
      form = smallest_form(here.shape(), mask->second->keep().to(Device{}).data<float>());
    }
    if (form.index == Index::dense) {
      out.tensors.push_back(
          {tensor.name, mask == masks.end() ? here : masked(here, *mask->second)});
      continue;
    }
    add_sparse(tensor.name, form, here, out);
    facts[tensor.name] = {
        {"shape", std::vector<std::int64_t>(here.shape().begin(), here.shape().end())},
        {"piece", {form.grid.piece_rows, form.grid.piece_columns}},
        {"index", kIndexNames[static_cast<int>(form.index)]}};
  }
  out.metadata = {{"format", kFormat}, {"sparse", facts.dump()}};
  return out;
}

bool is_sparse_file(const SafetensorsFile& file) {
  const auto format = file.metadata.find("format");
  return format != file.metadata.end() && format->second.starts_with(kSparseFormats);
}

void load_sparse_file(const SafetensorsFile& file, const std::string& path, Module& network) {
  const auto format = file.metadata.find("format");
  if (format == file.metadata.end() || format->second != kFormat) {
    damaged(path, "expected the format ", kFormat, ", got ",
            format == file.metadata.end() ? "none" : format->second.substr(0, 40),
            ", which this version does not read");
  }
  const Json facts = facts_in(file, path);
  std::map<std::string, const Mask*> masks;
  for (const MaskedWeight& one : masked_weights(network)) masks.emplace(one.name, one.mask);
  Found found;
  for (const NamedTensor& tensor : file.tensors) found.emplace(tensor.name, tensor.tensor);
  for (const auto& [name, fact] : facts.items()) {
    if (masks.contains(name)) continue;
    damaged(path, "expected pieces of weights that the config prunes, got '", name.substr(0, 100),
            "', which it does not");
  }
  for (const NamedTensor& to : tensors_of(network)) {
    const auto mask = masks.find(to.name);
    if (mask != masks.end() && facts.contains(to.name)) {
      const StoredForm form = stored_form(facts[to.name], path, to.name, to.tensor.shape());
      load_weight(form, found, path, to.name, to.tensor, *mask->second);
      continue;
    }
    to.tensor.copy_from(taken(found, path, to.name, to.tensor.dtype(), to.tensor.shape()));
    if (mask != masks.end()) mask->second->set_keep(Tensor::full(to.tensor.shape(), 1));
  }
  if (!found.empty()) {
    damaged(path, "expected no tensor '", found.begin()->first,
            "' because the config has none, got ", found.begin()->second.str());
  }
}

std::vector<SparseWeightFacts> sparse_weight_facts(const SafetensorsFile& file, Module& network) {
  const Json facts = facts_in(file, "the file");
  std::vector<SparseWeightFacts> out;
  for (const MaskedWeight& one : masked_weights(network)) {
    SparseWeightFacts& row = out.emplace_back();
    row.name = one.name;
    row.weights = row.kept = one.mask->keep().numel();
    row.index = "dense";
    for (const char* const part : {"", ".values", ".bits", ".row_begin", ".columns"}) {
      const Tensor* const tensor = file.find(one.name + part);
      if (tensor != nullptr) row.bytes += static_cast<std::int64_t>(tensor->size_bytes());
    }
    if (!facts.contains(one.name)) continue;
    row.kept = file.find(one.name + ".values")->numel();
    row.piece_rows = facts[one.name]["piece"][0].get<std::int64_t>();
    row.piece_columns = facts[one.name]["piece"][1].get<std::int64_t>();
    row.index = facts[one.name]["index"].get<std::string>();
  }
  return out;
}

}  // namespace convscope
