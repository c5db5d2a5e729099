#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule of tidy.py complains about a file that breaks it, and only then."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tidy  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


def complaints(files):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return tidy.check(root)[0].lines


class TidyTest(unittest.TestCase):
    def assert_one(self, files, expected):
        found = complaints(files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(expected, found[0])

    def assert_none(self, files):
        self.assertEqual(complaints(files), [])

    def test_a_clean_tree(self):
        self.assert_none({
            "memory/pool.hpp": SPDX + "#pragma once\n#include <vector>\n",
            "memory/pool.cpp": SPDX + "#include <reprise/memory/pool.hpp>\n",
            "tests/memory/pool_test.cpp": SPDX + "#include <reprise/memory/pool.hpp>\n"
                                          'TEST_CASE("a, b", "[memory][B7]") {}\n',
            "docs/PROMISES.md": "- **B7** something\n",
        })

    def test_lines(self):
        self.assert_one({"memory/a.cpp": SPDX + "// " + "x" * 98 + "\n"}, "memory/a.cpp:2: 101 col")
        self.assert_none({"memory/a.cpp": SPDX + "// " + "\u2264" * 97 + "\n"})
        self.assert_one({"memory/a.cpp": SPDX + "\tint a;\n"}, "a tab")
        self.assert_one({"memory/a.cpp": SPDX + "int a; \n"}, "space at the end")
        self.assert_one({"memory/a.cpp": SPDX + "int a;"}, "no newline")
        self.assert_one({"memory/a.cpp": SPDX + "\n" * 600}, "601 lines")
        self.assert_one({"memory/a.cpp": "int a;\n"}, "SPDX")
        self.assert_one({"docs/a.md": "see /wo" "rk/main\n"}, "where the project is made")

    def test_includes(self):
        self.assert_one({"memory/a.cpp": SPDX + '#include "../device/b.hpp"\n'}, "in quotes")
        self.assert_none({"tests/support/a.cpp": SPDX + '#include "support/b.hpp"\n'})
        for path, name in (("memory/a.cpp", "thread"), ("memory/a.cpp", "sys/mman.h"),
                           ("device/a.cpp", "boost/asio/post.hpp"),
                           ("runtime/actor.cpp", "boost/asio/post.hpp"),
                           ("runtime/actor.cpp", "concurrentqueue/concurrentqueue.h")):
            self.assert_one({path: SPDX + f"#include <{name}>\n"}, name)
        self.assert_none({
            "device/a.cpp": SPDX + "#include <dlfcn.h>\n#include <sys/mman.h>\n",
            "runtime/async.cpp": SPDX + "#include <boost/asio/post.hpp>\n",
            "runtime/control_lane.cpp": SPDX + "#include <concurrentqueue/concurrentqueue.h>\n",
        })

    def test_own_header_first(self):
        header = {"memory/a.hpp": SPDX + "#pragma once\n"}
        late = SPDX + "#include <vector>\n#include <reprise/memory/a.hpp>\n"
        self.assert_one({**header, "memory/a.cpp": late}, "not its own header")
        self.assert_one({**header, "tests/memory/a_test.cpp": late}, "not its own header")
        self.assert_one({"memory/a.hpp": SPDX}, "no #pragma once")

    def test_banned_text(self):
        self.assert_one({"memory/a.cpp": SPDX + "std::function<void()> f;\n"}, "std::function")
        self.assert_one({"runtime/actor.cpp": SPDX + "std::function<void()> f;\n"}, "std::function")
        self.assert_none({"runtime/client.cpp": SPDX + "std::function<void()> f;\n"})
        self.assert_none({"memory/a.cpp": SPDX + "int a;  // no std::function, it allocates\n"})
        self.assert_one({"tests/a.cpp": SPDX + "std::this_thread::sleep_for(x);\n"}, "sleep_for")
        self.assert_none({"bench/a.cpp": SPDX + "std::this_thread::sleep_for(x);\n"})
        self.assert_one({"runtime/a.cpp": SPDX + "t.detach();\n"}, "detach(")
        self.assert_one({"memory/a.cpp": SPDX + "// TO" "DO later\n"}, "unfinished")
        self.assert_one({"runtime/a.hpp": SPDX + "#pragma once\nstd::mutex mutex_;\n"}, "guards")
        self.assert_none({"runtime/a.hpp": SPDX + "#pragma once\nstd::mutex m_;  // guards x_\n"})

    def test_function_length(self):
        body = "  f({1});\n" * 59
        self.assert_one({"memory/a.cpp": SPDX + "namespace a {\n\nvoid f() {\n" + body + "}\n}\n"},
                        "memory/a.cpp:4: f has 61 lines")
        shorter = SPDX + "void f() {\n" + body[10:] + "}\nclass C {\n  C() : a_{1} {\n  }\n};\n"
        self.assert_none({"memory/a.cpp": shorter})
        self.assert_none({"memory/a.cpp": SPDX + "int table[] = {\n" + "  1,\n" * 80 + "};\n"})

    def test_ratchet(self):
        long_one = SPDX + "void f() {\n" + "  g();\n" * 68 + "}\n"
        self.assert_none({"memory/a.cpp": long_one, tidy.RATCHET: "memory/a.cpp f 70\n"})
        self.assert_one({"memory/a.cpp": long_one, tidy.RATCHET: "memory/a.cpp f 69\n"}, "most 69")
        self.assert_one({"memory/a.cpp": long_one, tidy.RATCHET: "memory/a.cpp f 75\n"}, "shrank")
        self.assert_one({tidy.RATCHET: "memory/a.cpp f 75\n"}, "no long function f")

    def test_titles(self):
        def case(title):
            return {"tests/a.cpp": SPDX + f'TEST_CASE("{title}", "[memory]") {{}}\n'}
        self.assert_one(case("a; b"), "ctest would run nothing")
        self.assert_one(case("a[0]"), "ctest would run nothing")
        self.assert_none({**case("a [I17] [B2]"), "docs/PROMISES.md": "- **I17** a\n- **B2** b\n"})
        self.assert_none(case("it's a (b), and <c>"))
        twice = SPDX + 'TEST_CASE("a", "[b]") {}\n' * 2
        self.assert_one({"tests/a.cpp": twice}, "tests/a.cpp:3: the title stands at tests/a.cpp:2")

    def test_promises(self):
        cites = {"tests/a.cpp": SPDX + 'TEST_CASE("a "\n          "b", "[x][I17][Xa][THR-3]") {}\n'}
        listed = "- **I17** a\n- **Xa** b\n- **THR-3** c\n"
        self.assert_none({**cites, "docs/PROMISES.md": listed})
        self.assert_one({**cites, "docs/PROMISES.md": listed + "- **D1** d\n"}, "D1 is cited by no")
        self.assert_one({**cites, "docs/PROMISES.md": listed[12:]}, "[I17] is not listed")
        self.assert_one({**cites, "docs/PROMISES.md": listed + "- **Xa** b\n"}, "Xa is listed tw")


if __name__ == "__main__":
    unittest.main()
