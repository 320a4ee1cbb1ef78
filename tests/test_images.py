"""Digits and the tasks on them: files, data rules, geometry, cells, and training that goes on after a kill."""

import gzip
import math
import os
import signal
import struct
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch

import nalm
from nalm import reproduction
from nalm.experiments import load as load_experiment
from nalm.images import digits, studies, tasks
from nalm.images.networks import (
    CELLS,
    PAIR_LAYERS,
    Cell,
    ColourPairs,
    IsolatedPairs,
    SequenceNetwork,
    SoftArgmax,
    ThinPlateSpline,
    last_layer,
    product_weights,
)
from nalm.images.runs import Question, _criterion, run
from nalm.images.trainer import Schedule, _resume, _save, fit
from nalm.reproduction import reproduce

SHARED = Path(__file__).parents[2] / "shared" / "data" / "mnist"
"""Where the real files lie beside a checkout of the developers; elsewhere the small digits are used."""


@pytest.fixture(scope="module")
def data():
    return digits.load(SHARED if SHARED.is_dir() else None)


@pytest.fixture(scope="module")
def small():
    return digits.embedded()


def idx_content(folder, name):
    path = folder / name
    return path.read_bytes() if path.is_file() else gzip.decompress((folder / f"{name}.gz").read_bytes())


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def folder(tmp_path):
    """Four small files in the standard form, one of them gzipped."""
    rng = np.random.default_rng(0)
    for key, (name, _) in digits.FILES.items():
        count = 40 if "train" in key else 20
        array = rng.integers(0, 256, (count, 28, 28), np.uint8) if "images" in key else np.arange(count, dtype=np.uint8) % 10
        content = idx(array)
        if key == "train_images":
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (tmp_path / name).write_bytes(content)
    return tmp_path


class TestFiles:
    def test_standard_files_are_read_gzipped_or_not(self, folder):
        read = digits.load(folder)
        assert read.train_images.shape == (40, 28, 28)
        assert read.test_labels.tolist() == [*range(10)] * 2
        assert "not MNIST" in read.source

    def test_the_environment_variable_names_the_folder(self, folder, monkeypatch):
        monkeypatch.setenv(digits.VARIABLE, str(folder))
        assert len(digits.load().train_images) == 40
        monkeypatch.delenv(digits.VARIABLE)
        assert digits.load().source.startswith("scikit-learn")

    def test_embedded_digits_have_every_digit_in_both_parts(self, small):
        assert small.train_images.shape[1:] == (28, 28)
        assert small.train_images.dtype == np.uint8
        assert np.bincount(small.train_labels).min() > 100
        assert np.bincount(small.test_labels).min() > 30
        assert len(small.train_images) + len(small.test_images) == 1797
        assert small.train_images.max() == 255

    def test_mnist_is_known_by_its_checksums(self, folder, monkeypatch):
        assert digits.load(folder).source != "MNIST"
        own = {key: (name, sha256(idx_content(folder, name)).hexdigest()) for key, (name, _) in digits.FILES.items()}
        monkeypatch.setattr(digits, "FILES", own)
        assert digits.load(folder).source == "MNIST"
        assert digits.download(folder, mirrors=()), "all is there: nothing is fetched"

    def test_the_data_of_these_tests_are_what_they_say(self, data):
        source, sizes = (
            ("MNIST", (60_000, 10_000)) if SHARED.is_dir() else ("scikit-learn digits, 8 x 8 enlarged", (1_442, 355))
        )
        assert data.source == source
        assert (len(data.train_images), len(data.test_images)) == sizes

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda b: b"\0\1" + b[2:], "not an IDX file"),
            (lambda b: b[:2] + b"\x0d" + b[3:], "only unsigned bytes"),
            (lambda b: b[:6], "ends within its header"),
            (lambda b: b[:3] + b"\x09" + b[4:], "must have from 1 to 4 axes, got 9"),
            (lambda b: b[:-3], "should hold 20 bytes"),
            (lambda b: b + b"\0", "but holds 21"),
            (lambda b: b"", "not an IDX file"),
            (lambda b: gzip.compress(b)[:-9], "not a whole gzip file"),
        ],
    )
    def test_damaged_files_are_named_in_a_line(self, folder, change, message):
        path = folder / digits.FILES["test_labels"][0]
        path.write_bytes(change(path.read_bytes()))
        with pytest.raises(ValueError, match=message) as caught:
            digits.load(folder)
        assert path.name in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_no_more_is_unpacked_than_the_header_says(self, folder):
        """A gzip file that would unpack to a gigabyte is refused before it does."""
        import tracemalloc

        path = folder / f"{digits.FILES['train_images'][0]}.gz"
        header = struct.pack(">HBB3I", 0, 8, 3, 40, 28, 28)
        packer = zlib.compressobj(wbits=31)
        path.write_bytes(
            packer.compress(header) + b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
        )
        tracemalloc.start()
        with pytest.raises(ValueError, match="unpacks to more than 31,376 bytes"):
            digits.load(folder)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
        tracemalloc.stop()

    def test_files_that_do_not_fit_together(self, folder):
        images, labels = (folder / digits.FILES[key][0] for key in ("test_images", "test_labels"))
        labels.write_bytes(idx(np.zeros(7, np.uint8)))
        with pytest.raises(ValueError, match="20 images and labels of shape"):
            digits.load(folder)
        labels.write_bytes(idx(np.full(20, 11, np.uint8)))
        with pytest.raises(ValueError, match="digits from 0 to 9"):
            digits.load(folder)
        images.write_bytes(idx(np.zeros((20, 14, 14), np.uint8)))
        with pytest.raises(ValueError, match="must have shape"):
            digits.load(folder)
        images.unlink()
        with pytest.raises(ValueError, match="nalm data mnist --data-dir"):
            digits.load(folder)

    def test_download_takes_the_first_mirror_that_has_the_right_file(self, folder, tmp_path_factory, monkeypatch):
        wrong, right, target = (tmp_path_factory.mktemp(name) for name in ("wrong", "right", "target"))
        known = {}
        for key, (name, _) in digits.FILES.items():
            content = digits._content(digits._found(folder, name))
            known[key] = (name, digits.hashlib.sha256(content).hexdigest())
            (right / f"{name}.gz").write_bytes(gzip.compress(content))
            (wrong / f"{name}.gz").write_bytes(gzip.compress(content[:-1] + b"?"))
        monkeypatch.setattr(digits, "FILES", known)
        mirrors = [f"file://{target}/none/", f"file://{wrong}/", f"file://{right}/"]
        assert len(digits.download(target, mirrors)) == 4
        assert digits.load(target).source == "MNIST", "checksums agree"
        assert sorted(path.name for path in target.iterdir()) == sorted(f"{name}.gz" for name, _ in known.values())
        (target / f"{known['test_labels'][0]}.gz").write_bytes(gzip.compress(b"something else"))
        with pytest.raises(ValueError, match="is not an IDX file"):
            digits.download(target, mirrors)

    def test_a_download_that_fails_leaves_nothing(self, tmp_path):
        with pytest.raises(ValueError, match=r"could not fetch train-images.*No such file"):
            digits.download(tmp_path / "data", [f"file://{tmp_path}/"])
        assert list((tmp_path / "data").iterdir()) == []
        (tmp_path / "file").write_text("")
        with pytest.raises(ValueError, match="cannot write to"):
            digits.download(tmp_path / "file" / "below", [])


class TestPairs:
    def test_no_pair_is_in_both_parts_and_each_is_tested_once(self):
        for chosen, folds, sizes in ((range(10), 10, {10}), (range(10), 3, {33, 34}), (range(1, 10), 10, {8, 9})):
            tested = []
            for fold in range(folds):
                train, test = tasks.fold_pairs(chosen, folds, fold)
                assert not set(train) & set(test)
                assert len(test) in sizes
                assert {d for pair in train for d in pair} == set(chosen), "every digit is seen in training"
                tested += test
            assert sorted(tested) == [(a, b) for a in chosen for b in chosen]
        assert len(tasks.fold_pairs(range(1, 10), 10, 0)[1]) == 9
        with pytest.raises(ValueError, match="fold must be between 0 and 9"):
            tasks.fold_pairs(range(10), 10, 10)

    @pytest.mark.parametrize("operation", ["mul", "div"])
    def test_samples_follow_the_rules(self, data, operation):
        chosen = range(1 if operation == "div" else 0, 10)
        train, test = tasks.split_pairs(data, chosen, 10, 3, (5, 4), operation)
        assert train.images is data.train_images
        assert test.images is data.test_images
        for part, labels, each in ((train, data.train_labels, 5), (test, data.test_labels, 4)):
            np.testing.assert_array_equal(part.labels, labels[part.index])
            counts = {tuple(pair): 0 for pair in part.labels}
            for pair in part.labels:
                counts[tuple(pair)] += 1
            assert set(counts.values()) == {each}
            a, b = part.labels.T
            np.testing.assert_allclose(part.target, a * b if operation == "mul" else a / b, rtol=1e-6)
        assert not {tuple(pair) for pair in train.labels} & {tuple(pair) for pair in test.labels}
        again, _ = tasks.split_pairs(data, chosen, 10, 3, (5, 4), operation)
        np.testing.assert_array_equal(train.index, again.index)
        images, labels, target = train.batch(np.array([3, 1]))
        assert images.dtype == torch.uint8
        assert images.shape == (2, 2, 28, 28)
        assert (labels.shape, target.shape) == ((2, 2), (2,))

    def test_a_digit_without_images_is_named(self, data):
        with pytest.raises(ValueError, match="no image of the digit 7"):
            tasks.pairs(data.train_images[:1], np.array([3], np.uint8), [(3, 7)], 2, 0, "mul")
        with pytest.raises(ValueError, match="samples must be at least 1"):
            tasks.pairs(data.train_images, data.train_labels, [(3, 7)], 0, 0, "mul")

    def test_networks_see_what_the_papers_normalise(self):
        white = torch.full((1, 1, 2, 2), 255, dtype=torch.uint8)
        torch.testing.assert_close(tasks.normalise(white), torch.full((1, 1, 2, 2), (1 - 0.1307) / 0.3081))
        torch.testing.assert_close(tasks.normalise(white.float() / 255), tasks.normalise(white))


class TestSequences:
    @pytest.mark.parametrize(("operation", "least"), [("add", 0), ("mul", 1)])
    def test_images_are_used_once_and_targets_accumulate(self, data, operation, least):
        made = {part: tasks.sequences(data, part, 4, operation, seed=1) for part in ("train", "validation", "test")}
        for part, own in made.items():
            assert len(np.unique(own.index)) == own.index.size, "no image twice"
            labels = data.test_labels if part == "test" else data.train_labels
            if part == "validation":
                held = min(5_000, len(labels) // 12)
                labels = labels[-held:]
                assert own.images.shape[0] == held
            values = labels[own.index].astype(float)
            assert values.min() == least
            expected = np.cumprod(values, 1) if operation == "mul" else np.cumsum(values, 1)
            np.testing.assert_allclose(own.target, expected)
        held = min(5_000, len(data.train_images) // 12)
        assert len(made["train"].images) == len(data.train_images) - held, "validation images are not among those of training"

    def test_only_training_depends_on_the_seed(self, data):
        for part, same in (("train", False), ("validation", True), ("test", True)):
            first, second = (tasks.sequences(data, part, 3, "mul", seed=seed) for seed in (0, 1))
            assert np.array_equal(first.index, second.index) is same

    def test_lengths_that_cannot_be(self, data):
        with pytest.raises(ValueError, match="got length 0"):
            tasks.sequences(data, "test", 0, "mul", 0)
        with pytest.raises(ValueError, match="do not make a sequence of length"):
            tasks.sequences(data, "test", 100_000, "mul", 0)


class TestGeometry:
    def test_control_points_in_place_give_the_identity(self, data):
        spline = ThinPlateSpline(42, 42)
        images = torch.from_numpy(data.train_images[:4]).float().reshape(2, 2, 28, 28)
        images = torch.nn.functional.pad(images, (7, 7, 7, 7))
        warped = spline(images, spline.control.expand(2, -1, -1))
        torch.testing.assert_close(warped, images, atol=0.02, rtol=0)

    def test_the_network_can_start_from_the_identity(self):
        torch.manual_seed(0)
        network = ColourPairs(last_layer("solved", "mul"), range(10), identity=True)
        images = torch.randn(3, 2, 42, 42)
        for locate in network.locate:
            torch.testing.assert_close(locate(images), network.spline.control.expand(3, -1, -1), atol=1e-5, rtol=0)
        published = ColourPairs(last_layer("solved", "mul"), range(10))
        assert published.locate[0](images).abs().max() < 0.5, "the published start: all control points near the middle"

    @pytest.mark.parametrize("degrees", [30.0, -45.0, 90.0])
    def test_a_known_rotation_is_undone(self, degrees, data):
        spline = ThinPlateSpline(42, 42)
        angle = math.radians(degrees)
        turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        image = torch.zeros(1, 1, 42, 42)
        image[0, 0, 7:35, 7:35] = torch.from_numpy(data.train_images[:5]).float().mean(0)
        turned = spline(image, (spline.control @ turn.T)[None])
        assert (turned - image).abs().max() > 30, "it was turned"
        back = spline(turned, (spline.control @ turn)[None])
        inner = (..., slice(8, 34), slice(8, 34))
        assert (back[inner] - image[inner]).abs().mean() < 0.06 * image[inner].abs().max()
        affine = torch.nn.functional.affine_grid(
            torch.cat([turn, torch.zeros(2, 1)], 1)[None], (1, 1, 42, 42), align_corners=False
        )
        expected = torch.nn.functional.grid_sample(image, affine, align_corners=False)
        torch.testing.assert_close(turned, expected, atol=0.5, rtol=0)

    def test_control_points_move_what_they_control(self):
        spline = ThinPlateSpline(42, 42)
        shifted = spline.control + torch.tensor([2 * 5 / 42, 0.0])
        image = torch.zeros(1, 1, 42, 42)
        image[0, 0, 20, 25] = 1.0
        moved = spline(image, shifted[None])
        assert moved[0, 0, 20, 20] == pytest.approx(1.0, abs=1e-3), "each pixel comes from five to its right"

    def test_moved_digits_stay_whole_and_bright(self, data):
        images = torch.from_numpy(data.train_images[:200]).reshape(100, 2, 28, 28)
        moved = tasks.move(images, torch.Generator().manual_seed(0))
        assert moved.shape == (100, 2, 42, 42)
        assert 0 <= moved.min() < moved.max() <= 1
        share = moved.sum((-1, -2)) / (images.float() / 255).sum((-1, -2))
        assert 0.45 < share.min() < 0.75, "the smallest has about half of the area"
        assert 1.1 < share.max() < 1.6
        again = tasks.move(images, torch.Generator().manual_seed(0))
        torch.testing.assert_close(moved, again)
        assert not torch.equal(moved, tasks.move(images, torch.Generator().manual_seed(1)))
        block = torch.zeros(100, 2, 28, 28)
        block[..., 9:19, 9:19] = 1.0
        placed = tasks.move(block, torch.Generator().manual_seed(0))
        middle = (placed.sum(-1) * torch.arange(42.0)).sum(-1) / placed.sum((-1, -2))
        assert 12 < middle.min() < 16, "placed from the top"
        assert 25 < middle.max() < 29, "to the bottom, twelve pixels further"

    def test_moves_turn_around_the_middle(self):
        bar = torch.zeros(1, 28, 28)
        bar[0, 13:15, 4:24] = 1.0
        moved = torch.cat([tasks.move(bar, torch.Generator().manual_seed(seed)) for seed in range(40)])
        rows, columns = torch.meshgrid(torch.arange(42.0), torch.arange(42.0), indexing="ij")
        angles = []
        for image in moved:
            weight = image / image.sum()
            y, x = rows - (weight * rows).sum(), columns - (weight * columns).sum()
            angles.append(
                0.5 * math.degrees(math.atan2(2 * float((weight * x * y).sum()), float((weight * (x**2 - y**2)).sum())))
            )
        assert -46 < min(angles) < -30
        assert 30 < max(angles) < 46


class TestNetworks:
    def test_soft_argmax_is_the_expected_digit(self):
        soft = SoftArgmax(range(1, 10))
        assert soft(torch.zeros(2, 9)).tolist() == pytest.approx([5, 5])
        logits = torch.full((1, 9), -100.0)
        logits[0, 6] = 100
        assert soft(logits).item() == 7

    @pytest.mark.parametrize("name", ["solved", "mlp", *PAIR_LAYERS])
    def test_every_layer_sits_behind_the_classifier(self, name, data):
        operation = "div" if name in ("real-npu-mod", "nru", "nmru", "mlp") else "mul"
        torch.manual_seed(0)
        network = IsolatedPairs(last_layer(name, operation), range(1, 10))
        images = torch.from_numpy(data.train_images[:8]).reshape(4, 2, 28, 28)
        labels, output = network(images)
        assert (labels.shape, output.shape) == ((4, 2), (4,))
        output.sum().backward()
        assert network.classifier[0].weight.grad.abs().max() > 0, "the layer passes gradients on"
        network.eval()
        apart = [network(images[:, [k, k]])[0][:, 0] for k in range(2)]
        torch.testing.assert_close(network(images)[0], torch.stack(apart, 1), atol=1e-4, rtol=1e-4)
        assert len(product_weights(network.layer)) == (0 if name in ("solved", "mlp") else 2)

    @pytest.mark.parametrize("name", ["real-npu-mod", "nru", "nmru"])
    def test_weights_of_the_exact_quotient_are_one_and_minus_one(self, name):
        layer = last_layer(name, "div")
        layer.set_solution_("div")
        assert product_weights(layer) == [1, -1]

    def test_readers_train_in_reduced_precision_and_are_evaluated_in_full(self, data):
        torch.manual_seed(0)
        network = SequenceNetwork("nmu", "mul")
        images = torch.from_numpy(data.train_images[:8]).reshape(4, 2, 28, 28)
        full = network(images)
        network.reader.reduced = True
        reduced = network(images)
        assert reduced.dtype == torch.float32
        assert 0 < (reduced - full).abs().max() < 0.05
        reduced.sum().backward()
        assert all(p.grad.dtype == torch.float32 and p.grad.abs().max() > 0 for p in network.reader.parameters())
        network.eval()
        assert torch.equal(network(images), full)

    def test_colour_network_has_the_published_sizes(self):
        network = ColourPairs(last_layer("nmu", "mul"), range(10))
        labels, output = network(torch.randn(3, 2, 42, 42))
        assert (labels.shape, output.shape) == ((3, 2), (3,))
        sizes = [tuple(p.shape) for p in network.locate[0].parameters() if p.ndim > 1]
        assert sizes == [(20, 2, 5, 5), (20, 20, 5, 5), (32, 320), (32, 32)]
        output.sum().backward()
        assert all(p.grad.abs().max() > 0 for p in network.locate.parameters())

    @pytest.mark.parametrize(("operation", "name"), [(op, name) for op, names in CELLS.items() for name in names])
    def test_cells_accumulate_as_explicit_sums_and_products_do(self, operation, name, generator):
        cell = Cell(name, operation).eval()
        numbers = 1 + torch.rand(6, 5, generator=generator)
        if name in ("nalu", "lstm"):
            assert cell(numbers).shape == (6, 5), "these start from zero, and have no exact solution from there"
            return
        if cell.layer is not None:
            cell.layer.set_solution_(operation)
        expected = numbers.cumprod(1) if operation == "mul" else numbers.cumsum(1)
        torch.testing.assert_close(cell(numbers), expected, rtol=1e-4, atol=1e-4)

    def test_input_penalty_by_hand(self):
        cell = Cell("nmu", "mul").train()
        with torch.no_grad():
            cell.layer.weight.copy_(torch.tensor([[0.25, 1.0]]))
        numbers = torch.tensor([[3.0, 5.0]])
        cell(numbers)
        assert cell.input_penalty().item() == pytest.approx(((1 - 0.25) * (1 - 4.0) ** 2 + 0) / 2)
        total = Cell("nau", "add").train()
        with torch.no_grad():
            total.layer.weight.copy_(torch.tensor([[-0.5, 1.0]]))
        total(numbers)
        assert total.input_penalty().item() == pytest.approx((1 - 0.5) * 4.0**2 / 2)
        assert Cell("solved", "mul").input_penalty() == 0

    def test_a_sequence_network_reads_every_image_once(self, data):
        network = SequenceNetwork("solved", "mul").eval()
        images = torch.from_numpy(data.train_images[:6]).reshape(2, 3, 28, 28)
        numbers = network.reader(tasks.normalise(images.reshape(6, 1, 28, 28))).reshape(2, 3)
        torch.testing.assert_close(network(images), numbers.cumprod(1))

    def test_unknown_layers_are_refused(self):
        with pytest.raises(ValueError, match="unknown layer 'nalu'; there are: solved, mlp, fc"):
            last_layer("nalu", "mul")
        with pytest.raises(ValueError, match="no cell 'nau' for 'mul'; there are add: solved"):
            Cell("nau", "mul")


TINY = {"train_samples": 2, "test_samples": 1, "folds": 10, "batch": 32, "learning_rate": 1e-3, "operation": "mul"}


def tiny_network(seed=0):
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.ReLU(), nalm.NMU(8, 1))
    x = torch.rand(50, 3, generator=torch.Generator().manual_seed(1))

    def loss(rows, step):
        return (network(x[rows]).squeeze(-1) - x[rows].prod(-1)).square().mean()

    def evaluate():
        return {"error": float((network(x).squeeze(-1) - x.prod(-1)).square().mean())}

    return network, loss, evaluate


class TestTrainer:
    def train(self, schedule, **options):
        network, loss, evaluate = tiny_network()
        return fit(network, 50, loss, evaluate, schedule, seed=7, **options).history, network

    def test_the_same_seed_gives_the_same_run_and_checkpoints_change_nothing(self, tmp_path):
        schedule = Schedule(epochs=5, batch=16, penalty=1.0, penalty_start=1, penalty_end=3, anneal=0.5, clip_norm=1.0)
        plain, network = self.train(schedule)
        saved, _ = self.train(schedule, checkpoint=tmp_path / "run.pt")
        assert plain == saved
        assert [entry["epoch"] for entry in plain] == [0, 1, 2, 3, 4, 5]
        assert network[3].weight.min() >= 0, "weights are kept in their box"
        assert [path.name for path in tmp_path.iterdir()] == ["run.pt"], "no half-written file stays"

    def test_a_run_goes_on_from_every_epoch(self, tmp_path):
        whole, _ = self.train(Schedule(epochs=4, batch=16))

        class StoppedError(Exception):
            pass

        for stop in (1, 2, 3):
            path, done = tmp_path / f"{stop}.pt", []

            def halt(share, done=done, stop=stop):
                done.append(share)
                if sum(done) > stop / 4 + 1e-9:
                    raise StoppedError

            with pytest.raises(StoppedError):
                self.train(Schedule(epochs=4, batch=16), checkpoint=path, on_epoch=halt)
            again, _ = self.train(Schedule(epochs=4, batch=16), checkpoint=path)
            assert again == whole

    def test_the_ramp_and_the_fall_of_the_learning_rate(self):
        with pytest.raises(ValueError, match="anneal must be between 0 and 1"):
            Schedule(anneal=2)
        with pytest.raises(ValueError, match="epochs must be at least 0"):
            Schedule(epochs=-1)
        with pytest.raises(ValueError, match="learning_rate must be positive"):
            Schedule(learning_rate=0)
        history, _ = self.train(Schedule(epochs=0))
        assert [entry["epoch"] for entry in history] == [0]
        sparse, _ = self.train(Schedule(epochs=5, evaluate_every=3))
        assert [entry["epoch"] for entry in sparse] == [0, 3, 5]

    def test_a_foreign_checkpoint_is_refused(self, tmp_path):
        path, good = tmp_path / "run.pt", {"epoch": 1, "network": {}, "optimiser": {}, "history": [], "seconds": 1.0}
        changes = [{}, {"epoch": 10**9}, {"epoch": -1}, {"epoch": "x"}, {"seconds": math.nan}, {"history": 3}]
        for change in [*changes, {"history": [{"epoch": 5}]}, {"network": 3}]:
            _save(path, {**good, **change})
            with pytest.raises(ValueError, match=r"not a checkpoint of this network.*remove it to start anew") as caught:
                self.train(Schedule(epochs=1), checkpoint=path)
            assert "\n" not in str(caught.value)

    def test_no_flipped_bit_and_no_missing_byte_of_a_checkpoint_changes_a_result(self, tmp_path, caplog):
        path, schedule = tmp_path / "run.pt", Schedule(epochs=2, batch=25)
        wanted, _ = self.train(schedule, checkpoint=path)
        whole, chance = path.read_bytes(), np.random.default_rng(0)
        damaged = [b"", whole[:1], b"not a checkpoint", *(whole[: chance.integers(len(whole))] for _ in range(20))]
        for place in chance.integers(8 * len(whole), size=100):
            flipped = bytearray(whole)
            flipped[place // 8] ^= 1 << place % 8
            damaged.append(bytes(flipped))
        for content in damaged:
            path.write_bytes(content)
            caplog.clear()
            network, _, _ = tiny_network()
            before, history = {name: p.clone() for name, p in network.state_dict().items()}, []
            assert _resume(path, network, torch.optim.Adam(network.parameters()), history, 2) == (0, 0.0)
            assert history == []
            assert all(torch.equal(before[name], p) for name, p in network.state_dict().items())
            assert [record.message.endswith("this run is trained from the start") for record in caplog.records] == [True]
        assert self.train(schedule, checkpoint=path)[0] == wanted
        assert path.read_bytes()[:18] == whole[:18], "the damaged checkpoint was replaced"

    def test_checkpoints_reach_the_disk_before_they_have_their_name(self, tmp_path, monkeypatch):
        order, flush, replace_ = [], os.fsync, os.replace
        monkeypatch.setattr(os, "fsync", lambda handle: (order.append("fsync"), flush(handle))[1])
        monkeypatch.setattr(os, "replace", lambda a, b: (order.append("replace"), replace_(a, b))[1])
        self.train(Schedule(epochs=1), checkpoint=tmp_path / "run.pt")
        assert order[:2] == ["fsync", "replace"]

    def test_killed_training_resumes_to_the_same_result(self, tmp_path):
        """A process is killed in the middle of training; what is started again ends as what was never disturbed."""
        script = tmp_path / "train.py"
        script.write_text(
            "import sys, json, torch\n"
            "from pathlib import Path\n"
            "from nalm.images.runs import Question, run\n"
            "torch.set_num_threads(1)\n"
            f"settings = {dict(TINY, epochs=4, penalty=1.0, penalty_start=1, penalty_end=3)!r}\n"
            "question = Question('isolated', 'snmu', 'snmu', 0, settings)\n"
            "folder = Path(sys.argv[1])\n"
            "print(json.dumps(run(question, folder)['history']))\n"
        )
        environment = {key: value for key, value in os.environ.items() if key != digits.VARIABLE}

        def start(folder):
            return subprocess.Popen([sys.executable, script, folder], stdout=subprocess.PIPE, text=True, env=environment)

        whole = start(tmp_path / "whole")
        killed = start(tmp_path / "killed")
        while not list((tmp_path / "killed").glob("*.pt")):
            assert killed.poll() is None
            time.sleep(0.02)
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        killed.stdout.close()
        again = start(tmp_path / "killed")
        assert again.communicate()[0] == whole.communicate()[0] != ""
        log = (tmp_path / "whole" / "training.log").read_text()
        assert "snmu 0 epoch 3" in log
        assert "images a second" in log


class TestStudies:
    def test_identity_of_a_run_is_what_determines_it(self):
        one = Question("isolated", "nmu", "nmu", 0, TINY)
        assert one.key == Question("isolated", "nmu", "nmu", 0, dict(TINY)).key
        assert one.key != Question("isolated", "nmu", "nmu", 1, TINY).key
        assert one.key != Question("isolated", "nmu", "nmu", 0, {**TINY, "batch": 16}).key

    @pytest.mark.parametrize(("task", "operation", "layer"), [("colour", "mul", "snmu-batch"), ("isolated", "div", "mlp")])
    def test_one_run_of_each_kind(self, task, operation, layer):
        settings = {
            **TINY,
            "operation": operation,
            "folds": 3,
            "epochs": 1,
            "penalty": 1.0,
            "penalty_start": 0,
            "penalty_end": 1,
        }
        history = run(Question(task, layer, layer, 1, settings))["history"]
        assert [entry["epoch"] for entry in history] == [0, 1]
        assert all(0 <= entry[key] <= 1 for entry in history for key in ("accuracy", "exact", "close", "label1", "label2"))
        assert np.sum(history[-1]["confusion"]) == 2 * (33 if operation == "mul" else 27)

    def test_the_layer_can_start_alike_in_all_folds(self):
        few = {"operation": "div", "folds": 3, "train_samples": 1, "test_samples": 1, "epochs": 0, "bfloat16": True}
        asked = [Question("isolated", "nru", "nru", seed, {**few, "layer_seed": 1}) for seed in (0, 2)]
        first, second = (run(question)["history"][0]["weights"] for question in asked)
        assert first == second
        assert first[0] > 0 > first[1]
        assert run(replace(asked[0], settings=few))["history"][0]["weights"] != first

    def test_every_loss_by_hand(self):
        output, target = torch.tensor([2.0, 0.5, 3.0]), torch.tensor([1.0, 0.5, 6.0])
        expected = {"mse": 10 / 3, "mape": 0.5, "log-magnitude": 2 * math.log(2) ** 2 / 3}
        for name, value in expected.items():
            assert _criterion({"loss": name})(output, target, 0).item() == pytest.approx(value)
        both = _criterion({"loss": "pcc-mse", "loss_switch": 10})
        correlation = np.corrcoef(output, target)[0, 1]
        assert both(output, target, 9).item() == pytest.approx(1 - correlation, abs=1e-6)
        assert both(output, target, 10).item() == pytest.approx(expected["mse"])
        with pytest.raises(ValueError, match="unknown loss 'l1'; there are: mse, pcc, mape, log-magnitude, pcc-mse"):
            _criterion({"loss": "l1"})

    def test_the_loss_of_a_study_is_used(self):
        few = {"operation": "div", "folds": 3, "train_samples": 2, "test_samples": 1, "epochs": 1, "batch": 8}
        asked = [Question("isolated", "nru", "nru", 0, {**few, "loss": loss}) for loss in ("mse", "log-magnitude")]
        first, second = (run(question)["history"][-1]["weights"] for question in asked)
        assert first != second

    def test_pairs_are_judged_by_their_last_epoch(self, monkeypatch):
        def entry(epoch, accuracy, weights, seen=0.5):
            confusion = (np.eye(10, dtype=int) * 5).tolist()
            scores = {"accuracy": accuracy, "exact": 0.0, "close": accuracy, "label1": 1.0, "label2": 0.5}
            return {"epoch": epoch, "weights": weights, "confusion": confusion, **scores, "train": {**scores, "accuracy": seen}}

        runs = [
            {"name": "nmu", "seed": 0, "history": [entry(0, 0.1, [0.5, 0.5]), entry(1, 0.8, [1.0, 0.995])], "seconds": 2.0},
            {"name": "nmu", "seed": 1, "history": [entry(0, 0.1, [0.5, 0.4], 0.9), entry(1, 0.6, [1.0, 0.5])], "seconds": 3.0},
            {"name": "solved", "seed": 0, "history": [entry(0, 0.1, []), entry(1, 0.9, [])], "seconds": 4.0},
        ]
        monkeypatch.setattr(studies, "run_all", lambda *arguments: runs)
        listed = [{"name": "nmu", "layer": "nmu", "label": "NMU"}, {"name": "solved", "layer": "solved", "seeds": 1}]
        result = studies.pair_study({"task": "isolated", "seeds": 2, "series": listed})
        assert result.values["nmu/accuracy"] == pytest.approx(70)
        assert result.values["nmu/accuracy low"] == pytest.approx(60)
        assert result.values["nmu over solved"] == pytest.approx(-20)
        assert result.values["nmu/weights_reached"] == 0.5
        assert math.isnan(result.values["solved/weights_reached"])
        assert result.values["nmu/least_digit"] == 1
        assert result.table[0]["accuracy_best"] == pytest.approx(80)
        assert result.table[0]["in training"] == pytest.approx(50)
        assert result.core_seconds == 9
        assert result.figure().axes
        among = studies.pair_study({"task": "isolated", "seeds": 2, "series": listed, "judged_among": 2})
        assert among.values["nmu/accuracy"] == pytest.approx((10 + 10) / 2), "the first of the best in training"

    def test_success_is_judged_by_the_bound_of_the_reference(self, monkeypatch):
        def runs(name, *errors):
            entries = [[{"epoch": 0, "validation": 9.0, "errors": [99, 99], "weights": [0.5, 0.5]}] for _ in errors]
            for own, error in zip(entries, errors, strict=True):
                own.append({"epoch": 1, "validation": 1.0, "errors": error, "weights": [1.0, 0.98]})
                own.append({"epoch": 2, "validation": 2.0, "errors": [98, 98], "weights": [0.5, 0.5]})
            return [{"name": name, "seed": k, "history": own, "seconds": 1.0} for k, own in enumerate(entries)]

        reference = runs("solved", [1.0, 2.0], [1.2, 2.2], [1.1, 2.1], [500.0, 900.0])
        measured = runs("nmu", [1.0, 5.0], [1.3, 2.0])
        monkeypatch.setattr(studies, "run_all", lambda *arguments: [*reference, *measured])
        settings = {"task": "sequence", "seeds": 4, "length": 2, "lengths": [2, 6]}
        listed = [{"name": "solved", "layer": "solved"}, {"name": "nmu", "layer": "nmu", "seeds": 2}]
        result = studies.sequence_study({**settings, "series": listed}, series=["nmu"])
        from scipy import stats

        bound = 1.1 + stats.t.ppf(0.99, 2) * 0.1 / math.sqrt(3)  # the run that did not learn is left out
        assert studies.reference_bound(np.array([[1.0], [1.2], [1.1], [500.0]]), 0)[0] == pytest.approx(bound)
        assert result.values["nmu/length2"] == 1.0
        assert result.values["nmu/length6"] == 0.5
        assert result.values["nmu/all_lengths"] == 0.5
        assert result.values["nmu/sparsity"] == pytest.approx(0.02)
        assert result.table[1]["length 6"] == "1 of 2"
        assert result.figure().axes

    def test_settings_of_all_experiments_can_be_run(self):
        for identity in ("S:fig8a", "S:fig8b", "T:fig5.17", "S:fig9", "M:fig4", "M:fig13", "T:fig6.4"):
            experiment = load_experiment(identity)
            for budget in ("quick", "paper"):
                asked = studies.questions(experiment.settings_for(budget), None)
                names = {one["name"] for one in experiment.settings["series"]}
                assert {one.name for one in asked} <= names
                for one in asked:
                    if one.task == "sequence":
                        Cell(one.layer, one.settings["operation"])
                        assert one.settings["length"] in one.settings["lengths"]
                    else:
                        last_layer(one.layer, one.settings["operation"])

    def test_figures_of_the_appendix_are_those_of_the_same_runs(self):
        for identity, home in (
            ("T:figF.2", "S:fig8a"),
            ("T:figF.6", "S:fig8b"),
            ("T:tab5.5", "T:fig5.17"),
            ("M:fig15", "M:fig4"),
        ):
            assert load_experiment(identity).id == home

    def test_reproduce_writes_what_it_drew_and_resumes(self, tmp_path, monkeypatch):
        experiment = load_experiment("S:fig9")
        series = [{"name": "solved", "layer": "solved", "seeds": 2}, {"name": "nmu", "layer": "nmu", "seeds": 1}]
        fewer = {"lengths": [1, 2, 3], "epochs": 1, "train_sequences": 40, "series": series}
        smaller = replace(experiment, quick={"settings": {**experiment.quick["settings"], **fewer}})
        monkeypatch.setattr(reproduction, "load", lambda identity: smaller)
        monkeypatch.delenv(digits.VARIABLE, raising=False)
        report = reproduce("S:fig9", "quick", out=tmp_path)
        assert [line["cell"] for line in report.table] == ["solved", "nmu"]
        assert report.core_seconds > 0
        assert all(verdict.verdict != "differ" for verdict in report.verdicts), "a quick run refutes nothing"
        own = tmp_path / "S-fig9"
        assert (own / "figure.png").stat().st_size > 10_000
        assert len(list((own / "checkpoints").glob("*.pt"))) == 3
        times = {path: path.stat().st_mtime_ns for path in (own / "checkpoints").glob("*.pt")}
        again = reproduce("S:fig9", "quick", out=tmp_path, series=["nmu"])
        assert again.table == report.table
        assert again.core_seconds == pytest.approx(report.core_seconds, rel=0.3), "what was trained before counts"
        assert {path: path.stat().st_mtime_ns for path in (own / "checkpoints").glob("*.pt")} == times, (
            "nothing was trained again"
        )
        with pytest.raises(ValueError, match="has no series 'lstm'"):
            reproduce("S:fig9", "quick", series=["lstm"])
        with pytest.raises(ValueError, match="no file train-images"):
            reproduce("S:fig9", "quick", data_dir=tmp_path)
