// SPDX-License-Identifier: Apache-2.0
// op_sparse_conv_test.cpp: tests `convscope op sparse_conv` on files: rows in the user's order,
// results, checks, exit codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/io/npy.h"
#include "tests/experiments/cli/op_files.h"
#include "tests/layers/sparse_conv/sparse_case.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

using Words = std::vector<std::string>;

class OpSparseCommand : public OpFiles {
 protected:
  // Writes the input files of a case. The sites are in a random order; the rows of the other files
  // have the same order.
  void write_case(const SparseCase& of, DType dtype = DType::f32) {
    problem_ = problem_of(of, dtype);
    tensors_ = sparse_tensors(problem_, /*integers=*/true);
    const SparseMap& map = *problem_.map;
    const bool inverse = map.kind() == SparseKind::inverse;
    const SparseSites& given = inverse ? *map.out_sites() : *map.in_sites();
    sites_ = coordinates_of(places_of(of), of.grid.rank);
    ASSERT_TRUE(same_bits(given.in_users_order(given.coordinates()), sites_));
    write_npy(at("sites.npy"), sites_);
    write_npy(at("x.npy"), map.in_sites()->in_users_order(tensors_.x));
    write_npy(at("w.npy"), tensors_.w);
    write_npy(at("b.npy"), tensors_.b);
    write_npy(at("dy.npy"), map.out_sites()->in_users_order(tensors_.dy));
    const auto axes = [&](const std::array<std::int64_t, 3>& values) {
      std::string out;
      for (std::size_t d = static_cast<std::size_t>(3 - of.grid.rank); d < 3; ++d) {
        out += (out.empty() ? "" : ",") + std::to_string(values[d]);
      }
      return out;
    };
    sizes_ = {"--extent",   axes(of.grid.extent),     "--batch",  std::to_string(of.grid.batch),
              "--dilation", axes(of.kernel.dilation), "--stride", axes(of.kernel.stride)};
    if (of.kind == SparseKind::submanifold) {
      sizes_.emplace_back("--submanifold");
    } else {
      sizes_.insert(sizes_.end(), {"--padding", axes(of.kernel.padding)});
      if (inverse) sizes_.emplace_back("--inverse");
    }
  }

  // Returns the exit code of `convscope op sparse_conv --sites sites.npy --x x.npy --w
  // w.npy <more>`.
  int run(const Words& more) {
    return call_op(
        {"sparse_conv", "--sites", at("sites.npy"), "--x", at("x.npy"), "--w", at("w.npy")}, more);
  }
  int run(Words more, const Words& and_more) {
    more.insert(more.end(), and_more.begin(), and_more.end());
    return run(more);
  }

  void expect_outputs(const std::string& algorithm) {
    ASSERT_EQ(run({"--b", at("b.npy"), "--dy", at("dy.npy"), "--out-sites", at("out.npy"),
                   "--out-y", at("y.npy"), "--out-dx", at("dx.npy"), "--out-dw", at("dw.npy"),
                   "--out-db", at("db.npy"), "--algorithm", algorithm},
                  sizes_),
              0)
        << errors_;
    const SparseMap& map = *problem_.map;
    const auto expect = [&](const char* name, Direction direction, const SparseSites* rows) {
      Tensor expected =
          Tensor::empty(problem_.operands(direction).outputs[0].desc.shape, DType::f64);
      const std::vector<double> values = from_pairs(problem_, direction, tensors_);
      std::ranges::copy(values, expected.data<double>());
      if (rows != nullptr) expected = rows->in_users_order(expected);
      const Tensor got = read_npy(at(name));
      EXPECT_EQ(got.dtype(), problem_.dtype);
      EXPECT_TRUE(near(got.to(DType::f64), expected, 0, 0)) << name;
    };
    expect("y.npy", Direction::forward, map.out_sites().get());
    expect("dx.npy", Direction::backward_data, map.in_sites().get());
    expect("dw.npy", Direction::backward_weight, nullptr);
    const Tensor db = read_npy(at("db.npy"));
    for (std::int64_t k = 0; k < problem_.k; ++k) {
      double sum = 0;
      for (std::int64_t i = k; i < tensors_.dy.numel(); i += problem_.k) sum += tensors_.dy.at(i);
      EXPECT_EQ(db.at(k), sum);
    }
    EXPECT_TRUE(same_bits(read_npy(at("out.npy")),
                          map.out_sites()->in_users_order(map.out_sites()->coordinates())));
    EXPECT_NE(errors_.find(problem_.text() + "\n"), std::string::npos) << errors_;
    EXPECT_NE(errors_.find(cat("map: ", map.bytes(), " bytes\n")), std::string::npos) << errors_;
    EXPECT_NE(errors_.find("forward: " + algorithm + "\n"), std::string::npos) << errors_;
  }

  SparseConvProblem problem_;
  SparseConvTensors tensors_;
  Tensor sites_;
  Words sizes_;
};

const SparseCase& case_named(const std::string& name) {
  return *std::ranges::find_if(kSparseCases, [&](const SparseCase& of) { return name == of.name; });
}

TEST_F(OpSparseCommand, WritesTheResultAndAllGradientsInTheUsersOrder) {
  for (const SparseCase& of : kSparseCases) {
    SCOPED_TRACE(of.name);
    write_case(of);
    expect_outputs("implicit_gemm");
  }
  expect_outputs("native");
}

TEST_F(OpSparseCommand, ComputesInTheTypeOfTheFiles) {
  write_case(case_named("volume"), DType::f64);
  expect_outputs("reference");
}

TEST_F(OpSparseCommand, TakesTheGridFromTheSites) {
  write_case(case_named("plane_full"));
  ASSERT_EQ(run({"--submanifold", "--out-y", at("y.npy")}), 0) << errors_;
  EXPECT_NE(errors_.find(",grid=1x9x11,"), std::string::npos) << errors_;
}

TEST_F(OpSparseCommand, WritesNoRowsForNoSites) {
  write_npy(at("sites.npy"), Tensor::empty({0, 4}, DType::i32));
  write_npy(at("x.npy"), Tensor::empty({0, 3}));
  write_npy(at("w.npy"), Tensor::zeros({2, 3, 3, 3, 3}));
  write_npy(at("dy.npy"), Tensor::empty({0, 2}));
  for (const Words& kind : {Words{"--submanifold"}, Words{"--padding", "1", "--stride", "2"}}) {
    ASSERT_EQ(run({"--dy", at("dy.npy"), "--out-sites", at("out.npy"), "--out-y", at("y.npy"),
                   "--out-dx", at("dx.npy"), "--out-dw", at("dw.npy"), "--out-db", at("db.npy")},
                  kind),
              0)
        << errors_;
    EXPECT_EQ(read_npy(at("out.npy")).shape(), Shape({0, 4}));
    EXPECT_EQ(read_npy(at("y.npy")).shape(), Shape({0, 2}));
    EXPECT_EQ(read_npy(at("dx.npy")).shape(), Shape({0, 3}));
    EXPECT_TRUE(same_bits(read_npy(at("dw.npy")), Tensor::zeros({2, 3, 3, 3, 3})));
    EXPECT_TRUE(same_bits(read_npy(at("db.npy")), Tensor::zeros({2})));
  }
}

TEST_F(OpSparseCommand, PrintsTimesWhenAskedTo) {
  write_case(case_named("volume"));
  for (const char* clock : {"wall", "cpu"}) {
    ASSERT_EQ(run({"--dy", at("dy.npy"), "--out-y", at("y.npy"), "--out-dx", at("dx.npy"),
                   "--out-dw", at("dw.npy"), "--repeats", "3", "--clock", clock},
                  sizes_),
              0)
        << errors_;
    for (const char* what : {"sites", "map", "forward", "backward_data", "backward_weight"}) {
      EXPECT_NE(output_.find(cat(what, " ms: ")), std::string::npos) << output_;
    }
    EXPECT_EQ(std::ranges::count(output_, '\n'), 5) << output_;
  }
}

TEST_F(OpSparseCommand, ExplainsWhatEachAlgorithmCosts) {
  write_case(case_named("volume"));
  ASSERT_EQ(run({"--explain"}, sizes_), 0) << errors_;
  EXPECT_TRUE(output_.starts_with(problem_.text() + "\n")) << output_;
  EXPECT_NE(output_.find(" pairs for each output site, density 0.1"), std::string::npos) << output_;
  for (const Direction direction : kDirections) {
    const std::string begin = cat("\n", name_of(direction), " (auto)\n");
    ASSERT_NE(output_.find(begin), std::string::npos) << output_;
    const std::vector<Verdict> verdicts = explain("auto", problem_, direction, Device{});
    EXPECT_TRUE(verdicts.front().chosen);
    EXPECT_EQ(verdicts.front().executed_per_useful, 1);
    EXPECT_NE(output_.find(cat("* ", verdicts.front().algorithm, " ")), std::string::npos);
    EXPECT_NE(output_.find(cat(" ", verdicts.front().limit, " ")), std::string::npos) << output_;
  }
  EXPECT_NE(output_.find(" 1.00x "), std::string::npos) << output_;
  // In half precision every algorithm is refused. `--explain` lists the reasons and needs no output
  // file.
  write_npy(at("x.npy"), read_npy(at("x.npy")).to(DType::f16));
  write_npy(at("w.npy"), read_npy(at("w.npy")).to(DType::f16));
  ASSERT_EQ(run({"--explain", "--algorithm", "native,auto"}, sizes_), 0) << errors_;
  EXPECT_NE(output_.find("! native refuses: expects elements of type f32, got f16"),
            std::string::npos)
      << output_;
  EXPECT_EQ(run({"--out-y", at("y.npy")}, sizes_), 5);
  EXPECT_NE(errors_.find("no algorithm here accepts it"), std::string::npos) << errors_;
}

TEST_F(OpSparseCommand, SaysWhatACheckFound) {
  write_case(case_named("volume"));
  ASSERT_EQ(run({"--dy", at("dy.npy"), "--out-y", at("y.npy"), "--out-dx", at("dx.npy"), "--out-dw",
                 at("dw.npy"), "--algorithm", "check:implicit_gemm,native"},
                sizes_),
            0)
      << errors_;
  for (const Direction direction : kDirections) {
    EXPECT_NE(errors_.find(cat("check  ", name_of(direction), ": implicit_gemm against native")),
              std::string::npos)
        << errors_;
  }
}

TEST_F(OpSparseCommand, AnswersMistakesWithTheirExitCodes) {
  write_case(case_named("plane"));
  const std::string y = at("y.npy");
  const auto expect = [&](const Words& words, int code, const std::string& part) {
    EXPECT_EQ(run(words), code) << errors_;
    EXPECT_NE(errors_.find(part), std::string::npos) << part << "\n" << errors_;
    EXPECT_EQ(std::ranges::count(errors_, '\n'), 1) << errors_;
    EXPECT_FALSE(std::filesystem::exists(y)) << part;
  };
  expect({}, 2,
         "expected --out-y, --out-sites, --out-dx, --out-dw, --out-db or --explain, got none");
  expect({"--submanifold", "--explain", "--out-y", y}, 2, "because it runs nothing");
  expect({"--submanifold", "--out-y", y, "--repeats", "-1"}, 2, "expected --repeats of at least 0");
  expect({"--submanifold", "--out-y", y, "--batch", "-1"}, 2, "expected --batch of at least 1");
  expect({"--submanifold", "--out-y", y, "--precision", "f16"}, 2, "the CPU has no units for f16");
  expect({"--submanifold", "--out-y", y, "--device", "tpu"}, 2, "tpu");
  expect({"--submanifold", "--out-y", y, "--device", "cuda", "--clock", "cpu", "--repeats", "1"}, 2,
         "because a GPU works asynchronously");
  for (const char* out : {"--out-dx", "--out-dw", "--out-db"}) {
    expect({"--submanifold", out, y}, 2, "expected --dy because a gradient is asked for");
  }
  expect({"--submanifold", "--out-y", y, "--clock", "sun"}, 2, "expected --clock wall or cpu");
  expect({"--submanifold", "--inverse", "--out-y", y}, 2, "got both");
  expect({"--submanifold", "--padding", "1", "--out-y", y}, 2, "expected no --padding");
  expect({"--submanifold", "--stride", "2", "--out-y", y}, 2, "expected odd sizes and stride 1");
  expect({"--out-y", y, "--stride", "1,2,3"}, 2, "expected --stride to be 1 or 2 whole numbers");
  expect({"--out-y", y, "--stride", "0"}, 2, "expected strides and dilations of at least 1");
  expect({"--out-y", y, "--extent", "9"}, 2, "expected --extent to be 2 whole numbers");
  expect({"--submanifold", "--out-y", y, "--extent", "12,16"}, 2,
         "expected w from 0 to 15 in the grid ");
  expect({"--submanifold", "--out-y", y, "--batch", "1"}, 2, "expected a batch index from 0 to 0");
  expect({"--submanifold", "--out-y", y, "--algorithm", "nativ"}, 5, "did you mean 'native'?");
  expect({"--submanifold", "--out-y", y, "--b", at("x.npy")}, 2,
         "expected b [16] of the type of x");
  expect({"--submanifold", "--out-y", y, "--b", at("absent.npy")}, 6, "absent.npy");
  expect({"--submanifold", "--dy", at("x.npy"), "--out-dw", y}, 2, "because that is y");
  expect({"--inverse", "--stride", "2", "--padding", "1", "--out-y", y}, 2,
         "because the strided convolution has that many outputs");

  Tensor sites = sites_.clone();
  sites.data<std::int32_t>()[3 * 5 + 1] = -2;
  write_npy(at("sites.npy"), sites);
  expect({"--submanifold", "--out-y", y}, 2, "got -2 in row 5: [");
  std::copy_n(sites_.data<std::int32_t>(), 3, sites.data<std::int32_t>() + 3 * 5);
  write_npy(at("sites.npy"), sites);
  expect({"--submanifold", "--out-y", y}, 2, " in row 0 and again in row 5");
  write_npy(at("sites.npy"), Tensor::zeros({4, 2}, DType::i32));
  expect({"--submanifold", "--out-y", y}, 2, "expected coordinates [n,3] (batch, h, w) or [n,4]");
  write_npy(at("sites.npy"), sites_.slice_rows(0, 7));
  expect({"--submanifold", "--out-y", y}, 2, "because --sites has that many rows");
  write_npy(at("sites.npy"), sites_);
  write_npy(at("w.npy"), Tensor::zeros({16, 4, 3, 3, 3}));
  expect({"--submanifold", "--out-y", y}, 2, "expected w [K,C,R,S] of the type of x");
  write_npy(at("w.npy"), Tensor::zeros({16, 5, 3, 3}));
  expect({"--submanifold", "--out-y", y}, 2, "with the C of x [");
  write_npy(at("w.npy"), Tensor::zeros({16, 4, 3, 2}));
  expect({"--submanifold", "--out-y", y}, 2, "expected odd sizes");
  write_npy(at("x.npy"), Tensor::zeros({3, 4}, DType::i32));
  expect({"--submanifold", "--out-y", y}, 2, "expected x [n,C] of type f32, f64 or f16");
}

}  // namespace
}  // namespace convscope::testing
