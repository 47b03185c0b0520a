#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests one network on 1, 2 and 4 processes: the bits are equal if the config requests it, else the
numbers agree within rounding."""
import harness
from harness import SMALL, epochs, largest_difference, status, summary, tensors, weights

SAME = ["train.deterministic_ranks=true"]
# A small network with a batch norm, a dropout and a residual sum.
LAYERS = ["model=null",
          "layers=[{type: conv2d, out_channels: 6, kernel_size: 3}, {type: batch_norm2d}, {type: relu},"
          " {type: max_pool2d, kernel_size: 2}, {type: flatten}, {type: dropout, p: 0.3}, {type: linear, out_features: 10}]"]


# Labels of class 3 have weight 0, and the parts of a batch have different total weights.
WEIGHTED = ["train.loss={label_smoothing: 0.1, class_weights: [1, 8, 0.5, 0, 2, 1, 1, 1, 1, 3]}"]


class SameBits(harness.Case):
    def check_same_bits(self, words, sizes=(0, 1, 2, 4)):
        runs = [self.train(f"p{size}", size, [*SMALL, *SAME, *words]) for size in sizes]
        for run in runs[1:]:
            self.assertEqual(weights(run), weights(runs[0]), f"{run}: other weights than {runs[0]}")
            for key in ("train_loss", "train_acc", "test_loss", "test_acc"):
                self.assertEqual([row[key] for row in epochs(run)], [row[key] for row in epochs(runs[0])], key)
        self.assertEqual([summary(run)["ranks"] for run in runs], [max(1, size) for size in sizes])
        for run in runs[1:]:
            for key in ("test_top5", "test_iou", "test_class_iou"):
                self.assertEqual(summary(run)[key], summary(runs[0])[key], key)
            self.assertEqual((run / "confusion.csv").read_text(), (runs[0] / "confusion.csv").read_text())

    def test_lenet(self):
        self.check_same_bits([])

    def test_batch_norm_and_dropout(self):
        self.check_same_bits(LAYERS)

    def test_dynamic_graph_adam_and_clipping(self):
        self.check_same_bits([*LAYERS, "train.plan=false", "optim={type: adam, clip_grad_norm: 0.5}"], (1, 2, 4))

    def test_slow_weights(self):
        # 13 updates in an epoch: Lookahead has its last move before the end of the run.
        self.check_same_bits([*LAYERS, "optim={type: sgdw, ema: {decay: 0.9}, lookahead: {k: 3}}"], (1, 2, 4))

    def test_class_weights(self):
        self.check_same_bits([*LAYERS, *WEIGHTED], (1, 2, 4))

    def test_augmented(self):
        self.check_same_bits(["data.augment={crop_padding: 2, mirror: true}"], (1, 2))

    def test_pruned(self):
        self.check_same_bits(["sparsity={method: magnitude, target: 0.8, end: 0.5}"], (1, 2))

    def test_pixel_labels(self):
        self.check_same_bits(["data={set: synthetic_segmentation, train_size: 60, test_size: 40, batch_size: 12,"
                              " image_size: 16, augment: {mirror: true}}", "model={type: unet, poolings: 2, width: 4}"],
                             (1, 2))

    def test_last_batch_with_fewer_images_than_parts(self):
        # An epoch has 13 batches. The last batch has 2 images, fewer than the 4 processes.
        self.check_same_bits(["data={set: synthetic_digits, train_size: 578, test_size: 200, batch_size: 48}", *LAYERS])

    def test_goes_on_with_another_number(self):
        whole = self.train("whole", 1, [*SMALL, *SAME])
        first = self.train("parts", 2, [*SMALL, *SAME, "--epochs-limit", "1"])
        self.assertEqual(status(first)["state"], "INTERRUPTED")
        self.call(["launch", "-n", "4", "--launcher", self.launcher, "run", "--resume", str(first)])
        self.assertEqual(weights(first), weights(whole))
        self.assertEqual(summary(first)["ranks"], 4)


class SameWithinRounding(harness.Case):
    """Another summation order causes a relative error of about eps in each gradient. In these short runs the error
    grows by less than a factor of ten per step. A larger difference means that the processes sum different
    terms."""

    STEPS = ["data={set: synthetic_digits, train_size: 240, test_size: 96, batch_size: 48}", "train.epochs=1", "threads=1"]

    def check_close(self, words, sizes=(2, 3, 4), tolerance=1e-4):
        one = self.train("one", 0, [*self.STEPS, *words])
        for size in sizes:
            other = self.train(f"p{size}", size, [*self.STEPS, *words])
            self.assertLess(largest_difference(tensors(one), tensors(other)), tolerance, f"{size} processes")
            self.assertAlmostEqual(float(epochs(one)[0]["train_loss"]), float(epochs(other)[0]["train_loss"]), 4)
            self.assertEqual(epochs(one)[0]["test_acc"], epochs(other)[0]["test_acc"])

    def test_lenet(self):
        self.check_close([])

    def test_small_buckets(self):
        self.check_close(["train.bucket_mib=0.01"], (2,))

    def test_unequal_shares(self):
        self.check_close(["data={set: synthetic_digits, train_size: 241, test_size: 96, batch_size: 49}"], (2, 3))

    def test_a_process_without_images(self):
        # The last batch has one image for 4 processes.
        self.check_close(["data={set: synthetic_digits, train_size: 241, test_size: 96, batch_size: 48}"], (4,))

    def test_dynamic_graph(self):
        self.check_close(["train.plan=false"], (2,))

    def test_accumulation(self):
        # 1 process computes 3 micro-batches, 2 processes 6 of 8 images, 4 processes 12.
        self.check_close(["train.accumulate=3"], (1, 2, 4))
        whole = self.train("whole", 0, self.STEPS)
        parts = self.train("parts", 0, [*self.STEPS, "train.accumulate=3"])
        self.assertLess(largest_difference(tensors(whole), tensors(parts)), 1e-4)
        self.assertNotEqual(weights(whole), weights(parts))

    def test_class_weights(self):
        self.check_close(WEIGHTED, (2, 3))
        self.check_close(["train.accumulate=3", *WEIGHTED], (1, 2))
        whole = self.train("whole", 0, [*self.STEPS, *WEIGHTED])
        parts = self.train("parts", 2, [*self.STEPS, *WEIGHTED, "train.accumulate=3"])
        self.assertLess(largest_difference(tensors(whole), tensors(parts)), 1e-4)

    def test_fewer_test_batches_than_processes(self):
        self.check_close(["data={set: synthetic_digits, train_size: 240, test_size: 40, batch_size: 48}"], (2,))


class Features(harness.Case):
    """Tests features that read the weights or the batches and do not only use gradients, such as quantisers and
    pruning. After each epoch the processes compare their weights and stop if the weights differ. So if a run
    succeeds, all processes had the same network."""

    def check_runs(self, words, config="quickstart"):
        return self.train("run", 2, [*SMALL, *words], config)

    def test_quantised(self):
        self.check_runs(["quant={w_bits: 4, a_bits: 4}"])

    def test_quantised_minmax_later(self):
        self.check_runs(["quant={w_bits: 8, a_bits: 8, method: minmax, begin: 0.3, calibration_batches: 3}"])

    def test_rigl(self):
        self.check_runs(["sparsity={method: rigl, target: 0.8, end: 0.8, every_steps: 4}"])

    def test_filters_removed(self):
        run = self.check_runs(["sparsity={method: filter, target: 0.5, end: 0.4, remove: true}"])
        self.assertIn("compact", summary(run)["execution"])

    def test_sparse_execution(self):
        self.check_runs(["sparsity={method: block, target: 0.8, end: 0.4, execute: sparse}"])

    def test_points(self):
        self.train("run", 2, ["sweep=null", "train.epochs=1", "threads=1", "data.limit=96", "data.batch_size=16"], "sparse_shapes")


if __name__ == "__main__":
    harness.main()
