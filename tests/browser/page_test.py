#!/usr/bin/env python3
"""The page of a report in headless Chromium.

usage: page_test.py REGATHER [TEST...]
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from browser import Browser
from many_cases import many_cases

PROGRAM = os.path.abspath(sys.argv.pop(1))
MIXED = pathlib.Path(__file__).parent.parent / "reports/documents/mixed.json"
EVIL = "</script><script>window.evil=1</script><img src=x onerror='window.evil=1'><a href='javascript:1'>\"'&"


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="page-"))
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        shutil.rmtree(cls.folder)

    def page(self, document, *options):
        path = self.folder / "page.html"
        subprocess.run([PROGRAM, "report", str(document), "--html", str(path), *options], check=True)
        return path

    def opened(self, fragment="", document=MIXED, *options):
        browser = self.browser
        browser.size(1280, 900)
        browser.dark(False)
        path = self.page(document, *options)
        browser.open(path, fragment)
        self.assertEqual(browser.complaints, [])
        elsewhere = [url for url in browser.requests if not url.startswith((f"file://{path}", "about:blank"))]
        self.assertEqual(elsewhere, [])
        return browser

    def texts(self, selector):
        return self.browser.run(f"[...document.querySelectorAll({selector!r})].map((e) => e.textContent)")

    def test_first_screen(self):
        browser = self.opened()
        self.assertIn("7 are red", browser.run("document.getElementById('sentence').textContent"))
        self.assertEqual(browser.run("document.querySelectorAll('.side button.glyph').length"), 16)
        self.assertEqual(len(set(self.texts(".legend .glyph"))), len(self.texts(".legend .glyph")), "a letter an outcome")
        bottom = browser.run("document.querySelector('.backend').getBoundingClientRect().bottom")
        self.assertLess(bottom, 900, "the grid begins on the first screen")

    def test_a_glyph_opens_its_case_by_mouse_and_by_keyboard(self):
        browser = self.opened()
        browser.run("document.querySelector('.backend button.glyph').click()")
        self.wait("document.querySelector('.detail')")
        self.assertIn("case=ddp", browser.run("location.hash"))
        browser.press("Escape")
        self.wait("!document.querySelector('.detail')")
        first = browser.run("(document.querySelector('.side button.glyph').focus(), document.activeElement.title)")
        browser.press("ArrowDown")
        second = browser.run("document.activeElement.title")
        self.assertNotEqual(first, second)
        self.assertTrue(browser.run("document.activeElement.classList.contains('glyph')"))
        browser.press("Enter")
        self.wait("document.querySelector('.detail')")
        self.assertIn(second.split(",")[0], browser.run("document.querySelector('.detail h2').textContent"))

    def wait(self, condition):
        for _ in range(200):
            if self.browser.run(f"Boolean({condition})"):
                return
            self.browser.run("new Promise((done) => setTimeout(done, 10))")
        self.fail(condition)

    def test_a_case_shows_what_is_known_of_it(self):
        browser = self.opened("case=zero3/sft/fix%3Dnone")
        text = browser.run("document.querySelector('.detail').innerText")
        self.assertNotIn("[object", text)
        for part in ("size mismatch", "head_read_partitioned", "Passes as", "gather", "recompute_hold",
                     "regather matrix run --case 'zero3/sft/fix=none'", "lm_head.weight"):
            self.assertIn(part, text)
        browser = self.opened("case=zero3/kto/fix%3Dnone")
        self.assertIn("trl#6372", browser.run("document.querySelector('.detail').innerText"))
        browser = self.opened("case=ddp/kto/fix%3Dredirect")
        self.assertIn("SIGSEGV", browser.run("document.querySelector('.detail').textContent"))
        browser = self.opened("case=ddp/sft/fix%3Dnone")
        self.assertEqual(browser.run("document.querySelectorAll('.detail .bar.over').length"), 1)

    def test_filters_are_kept_in_the_address(self):
        browser = self.opened("view=cases&backend=ddp&outcome=wrong_gradient")
        self.assertEqual(self.texts("table.list tbody td.mono"), ["ddp/sft/fix=none"])
        browser.run("(() => { const s = document.querySelector('input[type=search]'); s.value = 'SIGSEGV';"
                    "s.dispatchEvent(new Event('input')); })()")
        self.assertEqual(self.texts("table.list tbody td.mono"), [])
        browser.run("document.querySelector('.legend button[aria-pressed=true]').click()")
        self.wait("document.querySelectorAll('table.list tbody tr').length === 1")
        self.assertEqual(self.texts("table.list tbody td.mono"), ["ddp/kto/fix=redirect"])
        self.assertIn("q=SIGSEGV", browser.run("location.hash"))
        self.assertNotIn("outcome", browser.run("location.hash"))
        browser = self.opened("red=only&view=cases")
        self.assertEqual(len(self.texts("table.list tbody td.mono")), 7)
        browser = self.opened("backend=ddp")
        self.assertEqual(browser.run("document.querySelectorAll('.glyph.out').length"), 12, "others fade in the grid")

    def test_views(self):
        self.opened("view=issues")
        self.assertTrue(any("trl#" in text for text in self.texts("main h2")))
        self.opened("view=mechanisms")
        self.assertIn("reducer_unarmed", self.texts("main h2"))
        self.opened("view=slowest")
        times = [float(text) for text in self.texts("table.list tbody td.number")]
        self.assertEqual(times, sorted(times, reverse=True))
        self.assertGreater(len(times), 1)

    def test_compare(self):
        before = json.loads(MIXED.read_text())
        before["environment"]["torch"] = "2.10.0"
        before["cases"] = [c for c in before["cases"] if c["id"] != "zero1/sft/fix=none"]
        earlier = self.folder / "before.json"
        earlier.write_text(json.dumps(before))
        self.opened("view=compare", MIXED, "--baseline", str(earlier))
        text = self.browser.run("document.getElementById('main').textContent")
        for part in ("Likely causes", "torch", "2.10.0", "2.11.0", "1 new", "zero1/sft/fix=none"):
            self.assertIn(part, text)
        self.opened()
        self.assertNotIn("Compare", self.texts("nav a"))

    def test_phone_and_dark(self):
        browser = self.opened()
        light = browser.run("getComputedStyle(document.body).backgroundColor")
        browser.dark(True)
        self.assertNotEqual(browser.run("getComputedStyle(document.body).backgroundColor"), light)
        browser.size(390, 844, phone=True)
        for fragment in ("", "view=cases", "view=issues", "view=mechanisms",
                         "case=zero3/dpo/fix%3Dgather%2Brecompute_hold%2Bredirect"):
            browser.open(self.folder / "page.html", fragment)
            self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 390, fragment)

    def test_letters_are_readable(self):
        """Contrast of at least 4.5 between each glyph's letter and its ground, in both schemes."""
        script = """(() => {
          const light = (text) => {
            const parts = text.match(/[0-9.]+/g).map(Number).slice(0, 3).map((v) => v / 255)
              .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
          };
          const ground = (node) => {
            for (let at = node; at; at = at.parentElement) {
              const colour = getComputedStyle(at).backgroundColor;
              if (!/, 0\\)$/.test(colour) && colour !== 'transparent') return colour;
            }
            return 'rgb(255, 255, 255)';
          };
          return [...document.querySelectorAll('.legend .glyph, .sentence, .facts dt, .count, .link')].map((node) => {
            const a = light(getComputedStyle(node).color), b = light(ground(node));
            return [node.className + ' ' + node.textContent.slice(0, 20), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
          });
        })()"""
        for dark in (False, True):
            browser = self.opened("view=mechanisms")
            browser.dark(dark)
            for name, contrast in browser.run(script):
                self.assertGreaterEqual(contrast, 4.5, f"{name}, dark {dark}")

    def test_controls_have_names(self):
        browser = self.opened("case=zero3/sft/fix%3Dnone")
        nameless = browser.run("[...document.querySelectorAll('button, a, select, input')].filter((e) => !(e.getAttribute("
                               "'aria-label') || e.textContent.trim() || e.closest('label'))).map((e) => e.outerHTML)")
        self.assertEqual(nameless, [])

    def test_a_hostile_document_runs_nothing(self):
        document = json.loads(MIXED.read_text())
        document["plan"]["definition"] = EVIL
        document["environment"] = {EVIL: EVIL, "stack": EVIL, "packages": {EVIL: EVIL}}
        for case in document["cases"]:
            case["reason"] = case["stack"] = case["device"] = EVIL
            if case["signature"]:
                case["signature"] |= {"text": EVIL, "type": EVIL, "upstream": EVIL,
                                      "where": {"module": EVIL, "parameter": EVIL, "collective": EVIL}}
            if case["gradients"]:
                case["gradients"]["worst"] = EVIL
            if "death" in case:
                case["death"] = {EVIL: EVIL}
        hostile = self.folder / "hostile.json"
        hostile.write_text(json.dumps(document))
        for fragment in ("", "view=cases", "view=issues", "view=mechanisms", "view=compare", "case=zero3/sft/fix%3Dnone",
                         "case=ddp/kto/fix%3Dredirect", "q=" + EVIL.replace("&", "%26"), "view=__proto__", "backend=<b>"):
            browser = self.opened(fragment, hostile, "--baseline", str(hostile))
            self.assertIsNone(browser.run("window.evil"), fragment)
            self.assertEqual(browser.run("document.querySelectorAll('main img, main script, a[href^=javascript]').length"), 0)

    def test_its_policy_stops_what_is_not_its_own(self):
        """The check of the check: a script that is not the page's own, put into the file, does not run."""
        path = self.page(MIXED)
        path.write_text(path.read_text().replace("<main", "<script>window.evil = 1</script><main"))
        self.browser.open(path)
        self.assertIsNone(self.browser.run("window.evil"))
        self.assertTrue(any("Content Security Policy" in text for text in self.browser.complaints))

    def test_5000_cases_are_below_3_MB(self):
        document = self.folder / "many.json"
        document.write_text(json.dumps(many_cases(PROGRAM, 5000)))
        browser = self.opened("", document)
        self.assertLess((self.folder / "page.html").stat().st_size, 3_000_000)
        self.assertIn("5000 cases", browser.run("document.getElementById('sentence').textContent"))
        browser = self.opened("view=cases", document)
        self.assertEqual(browser.run("document.querySelectorAll('table.list tbody tr').length"), 100, "drawn as asked for")


if __name__ == "__main__":
    unittest.main()
