"""The real trainers: what is seen of the head, what the judge finds, and rows of repro/call_paths.json run again."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "matrix" / "peers"))

from regather_peers.trainers import shims  # noqa: E402

shims.before_imports()

import torch  # noqa: E402

from regather_peers import call_paths  # noqa: E402
from regather_peers.model import named  # noqa: E402
from regather_peers.trainers import judge, observe, setting  # noqa: E402


class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, again):
        ctx.save_for_backward(hidden, weight)
        ctx.again = again
        return (hidden @ weight.t()).sum()

    @staticmethod
    def backward(ctx, gradient):
        hidden, weight = ctx.saved_tensors
        weight = weight.float() if ctx.again else weight
        return gradient * weight.sum(0).expand_as(hidden), gradient * hidden.sum(0).expand_as(weight), None


class Wrapper(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *args):
        return self.inner(*args)


class Root(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 8, bias=False)
        self.again = False

    def forward(self, x):
        return self.fused(x)

    def fused(self, x):
        return Fused.apply(self.decoder(x), self.head.weight, self.again)

    def plain(self, x):
        return self.head(self.decoder(x)).sum()


class TheWatch(unittest.TestCase):
    watch = observe.Watch()

    @classmethod
    def setUpClass(cls):
        cls.kept = torch.autograd.Function.__dict__["apply"], torch.autograd._engine_run_backward
        cls.watch._function_apply()
        cls.watch._autograd_backward()
        cls.watch._wrap(Wrapper, "forward", cls.watch._forward_of)

    @classmethod
    def tearDownClass(cls):
        torch.autograd.Function.apply, torch.autograd._engine_run_backward = cls.kept

    def seen(self, loss, again=False, trainer="dpo"):
        root = Root()
        root.again = again
        wrapper = Wrapper(root)
        self.watch.events = []
        self.watch.of(wrapper, root.decoder, root.head)
        self.watch.begin()
        loss(root, wrapper, torch.ones(2, 4)).backward()
        self.watch.end()
        return observe.call_of(self.watch.events, trainer)

    def test_on_the_unwrapped_model(self):
        found = self.seen(lambda root, _, x: root.fused(x))
        self.assertEqual((found["call"], found["fixes"], found["kernel"], found["read_by"]),
                         ("direct", [], "fused", "Fused"))

    def test_inside_the_wrapper(self):
        self.assertEqual(self.seen(lambda _, wrapper, x: wrapper(x))["call"], "engine")

    def test_redirected(self):
        def loss(_, wrapper, x):
            with self.watch._redirected(None):
                return wrapper(x)
        found = self.seen(loss)
        self.assertEqual((found["call"], found["fixes"]), ("direct", ["redirect"]))

    def test_gathered_by_a_scope(self):
        def loss(root, wrapper, x):
            self.watch._gathered.append([root.head.weight])
            try:
                return root.fused(x)
            finally:
                self.watch._gathered.pop()
        self.assertEqual(self.seen(loss)["fixes"], ["gather"])

    def test_gathered_for_the_reference(self):
        reference = torch.nn.Linear(4, 8, bias=False)

        def loss(root, wrapper, x):
            self.watch.reference_head = reference
            self.watch._gathered.append([reference.weight])
            try:
                return root.fused(x)
            finally:
                self.watch._gathered.pop()
        self.assertEqual(self.seen(loss)["fixes"], ["gather"])

    def test_the_head_as_a_module(self):
        self.assertEqual(self.seen(lambda root, _, x: root.plain(x))["kernel"], "eager")

    def test_taken_again_in_backward(self):
        self.assertEqual(self.seen(lambda root, _, x: root.fused(x), again=True)["kernel"], "recomputed")

    def test_kl_term(self):
        def loss(root, _, x):
            with torch.no_grad():
                root.plain(x)
            return root.fused(x)
        self.assertEqual(self.seen(loss, trainer="kto")["fixes"], [])
        self.assertEqual(self.seen(lambda root, _, x: root.fused(x), trainer="kto")["fixes"], ["kl_backbone"])

    def test_failed_before_the_head(self):
        def loss(root, _, x):
            root.decoder(x)
            raise ValueError
        with self.assertRaises(ValueError):
            self.seen(loss)
        found = observe.call_of(self.watch.events, "dpo")
        self.assertEqual((found["call"], found["kernel"]), ("direct", None))
        self.assertIsNone(observe.call_of([], "dpo")["call"])


class TheJudge(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        setting.write(cls.folder.name)
        policy = judge._load(cls.folder.name, "policy")
        weights = {name: p.detach().float() for name, p in named(policy).items()}
        torch.manual_seed(3)
        cls.steps = []
        for _ in range(2):
            ids = torch.randint(3, setting.VOCABULARY, (4, 9))
            batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids),
                     "completion_mask": (torch.arange(9) > 3).long().expand(4, 9)}
            cls.steps.append({"batch": batch, "weights": weights, "items": None, "gradients": None})
        cls.own = judge.gradients("dpo", cls.folder.name, cls.steps)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def judged(self, gradients):
        """`gradients(name, rank)`: what each rank holds."""
        with tempfile.TemporaryDirectory() as folder:
            for rank, step in enumerate(self.steps):
                made = step | {"gradients": {name: gradients(name, rank) for name in self.own[0]}}
                torch.save([made], os.path.join(folder, f"rank{rank}.pt"))
            return judge.main({"trainer": "dpo"}, self.folder.name, folder)

    def mean(self, name, _):
        return ((self.own[0][name] + self.own[1][name]) / 2).float()

    def test_right(self):
        found = self.judged(self.mean)
        self.assertEqual((found["outcome"], found["steps"], found["missing"]), ("pass", 1, 0))
        self.assertLess(found["relative_l2"], 1e-6)

    def test_each_rank_its_own(self):
        found = self.judged(lambda name, rank: self.own[rank][name].float())
        self.assertEqual(found["outcome"], "wrong_gradient")
        self.assertLess(found["local_relative_l2"], 1e-6)
        self.assertGreater(found["apart"], 0.1)

    def test_one_parameter_off_on_one_rank(self):
        def off(name, rank):
            return self.mean(name, rank) * (1.0001 if rank == 1 and name == "lm_head.weight" else 1)
        found = self.judged(off)
        self.assertEqual(found["outcome"], "wrong_gradient")
        self.assertIn("lm_head.weight of step 0 on rank 1", found["worst"])

    def test_not_finite(self):
        found = self.judged(lambda name, rank: torch.full_like(self.mean(name, rank), float("nan")))
        self.assertEqual(found["outcome"], "nonfinite")

    def test_missing(self):
        found = self.judged(lambda name, rank: None if name == "model.norm.weight" else self.mean(name, rank))
        self.assertEqual((found["outcome"], found["missing"]), ("wrong_gradient", 2))


class RowsAgain(unittest.TestCase):
    def test_this_release(self):
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "matrix" / "peers"))
        ran = subprocess.run([sys.executable, "-W", "ignore", "-m", "regather_peers.trainers", "--json", "--trainer",
                              "sft,dpo", "--fused", "liger,chunked", "--backend", "ddp,zero3,fsdp2"], env=environment,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        lines = [json.loads(line) for line in ran.stdout.splitlines()]
        self.assertEqual(len(lines), 12)
        if lines[0]["trl"] in call_paths.RELEASES:
            rows = json.loads(call_paths.FILE.read_text())["rows"]
            self.assertEqual(list(call_paths.disagreements(rows, lines)), [])


if __name__ == "__main__":
    unittest.main()
