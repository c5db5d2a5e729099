#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules of the house that no compiler checks. Prints file:line: what is wrong.

    tests/tidy.py                  check the repository that this file lies in
    tests/tidy.py --root FOLDER    check another one
    tests/tidy.py --format PROGRAM run clang-format over the sources instead
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOMS = ("memory", "device", "capture", "runtime")
MAX_COLUMNS = 100
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
RATCHET = "tests/tidy_long_functions.txt"
PROMISES = "docs/PROMISES.md"

STANDARD_HEADER = re.compile(r"^[a-z0-9_]+$")
SYSTEM_HEADER = re.compile(r"^([a-z0-9_]+|(sys|linux)/[a-z0-9_]+)\.h$")
# "No threads, no I/O" in memory/, as includes.
NOT_IN_MEMORY = {"thread", "condition_variable", "future", "semaphore", "barrier", "latch",
                 "stop_token", "fstream", "iostream", "filesystem"}
# Rooms that may call the operating system.
SYSTEM_ROOMS = ("device", "runtime")
# Third parties: which files of runtime/ may include what.
THIRD_PARTY = (
    (re.compile(r"^boost/"),
     re.compile(r"^runtime/(async|completion_port)[a-z0-9_]*\.[ch]pp$")),
    (re.compile(r"^boost/json"), re.compile(r"^runtime/graph_file\.cpp$")),
    (re.compile(r"^concurrentqueue/"),
     re.compile(r"^runtime/(channel|control_lane|block_cache)[a-z0-9_]*\.[ch]pp$")),
    (re.compile(r"^sanitizer/"), re.compile(r"^(memory|device|runtime)/")),
)

# (text, files it is banned from, reason); the text is looked for outside comments.
EVERYWHERE = re.compile(r"")
NOT_BENCH = re.compile(r"^(?!bench/)")
IN_ROOMS = re.compile(r"^(memory|device|capture|runtime)/")
HOT = re.compile(r"^(memory|device|capture)/|^runtime/(channel|actor)")
BANNED = (
    ("any_completion_handler", EVERYWHERE, "Boost 1.81's is broken; use Operation"),
    ("boost/asio.hpp", EVERYWHERE, "include the parts of Asio that are used"),
    ("std::counting_semaphore", EVERYWHERE, "libstdc++ 12's loses wake-ups"),
    ("std::binary_semaphore", EVERYWHERE, "libstdc++ 12's loses wake-ups"),
    ("atomic_thread_fence", EVERYWHERE, "the thread sanitizer does not model fences"),
    ("sleep_for", NOT_BENCH, "time comes from the host seam"),
    ("this_thread::sleep_until", NOT_BENCH, "time comes from the host seam"),
    ("detach(", EVERYWHERE, "threads are joined"),
    ("std::views::", IN_ROOMS, "clang 14 does not compile libstdc++ 12's views"),
    ("std::source_location", IN_ROOMS, "clang 14 has none; use SourceLocation"),
    ("std::function", HOT, "it allocates and is slow on hot paths"),
)
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")

# Words of the place where the project is made, spelled in halves so that this file passes itself.
FORBIDDEN = ("/wo" "rk/", ".lib" "rary", "shared" "/data", "shared" "/design", "shared" "/lab",
             "helper" " agent")
# The one file that may name the folder with test data beside the repository.
MAY_NAME_DATA = {".ci/run": "../shared" "/data"}

TEST_MACRO = re.compile(
    r"\b(?:TEMPLATE_(?:LIST_)?)?TEST_CASE(?:_METHOD|_SIG)*\s*\(|\bSCENARIO\s*\(")
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
ID = re.compile(r"\[((?:[BINDO]\d+)|(?:X[a-l])|(?:THR-\d+))\]")
PROMISE = re.compile(r"^- \*\*([A-Z][A-Za-z0-9-]*)\*\* \S")


class Report:
    def __init__(self):
        self.lines = []

    def add(self, path, line, text):
        self.lines.append(f"{path}:{line}: {text}")


def repository_files(root):
    """Paths of the files that belong to the repository, relative to root."""
    git = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"]
    try:
        out = subprocess.run(git, capture_output=True, text=True, check=True).stdout
        paths = out.splitlines()
    except (OSError, subprocess.CalledProcessError):
        paths = []
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders if f not in (".git", "build", "out")]
            paths += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(p for p in set(paths) if (root / p).is_file() and not (root / p).is_symlink())


def is_cpp(path):
    return path.endswith((".cpp", ".hpp"))


def is_script(path, text):
    return text.startswith("#!") or path.endswith((".py", ".sh", ".cmake", "CMakeLists.txt"))


def room_of(path):
    room = path.split("/")[0]
    return room if room in ROOMS else None


def without_comments(text, keep_strings=True):
    """The text with comments (and strings, if asked) blanked; lines keep their numbers."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^()\s\\]*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"'
                       r"|(?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)+'", re.S)

    def blank(match):
        found = match.group(0)
        if not found.startswith("/") and keep_strings:
            return found
        return re.sub(r"[^\n]", " ", found)

    return token.sub(blank, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_lines(report, path, text, lines):
    limited = is_cpp(path) or is_script(path, text)
    for number, line in enumerate(lines, 1):
        if limited and len(line) > MAX_COLUMNS:
            report.add(path, number, f"{len(line)} columns, at most {MAX_COLUMNS}")
        if "\t" in line:
            report.add(path, number, "a tab")
        if limited and line != line.rstrip():
            report.add(path, number, "space at the end of the line")
        for word in FORBIDDEN:
            allowed = MAY_NAME_DATA.get(path)
            if word in (line.replace(allowed, "") if allowed else line):
                report.add(path, number, f"'{word}' says where the project is made, not what it is")
    if text and not text.endswith("\n"):
        report.add(path, len(lines), "no newline at the end of the file")
    if (is_cpp(path) or path.endswith(".py")) and len(lines) > MAX_FILE_LINES:
        report.add(path, len(lines), f"{len(lines)} lines, at most {MAX_FILE_LINES}")


def check_license(report, path, text, lines):
    if not (is_cpp(path) or is_script(path, text) or path.endswith(".pml")):
        return
    first = 1 if text.startswith("#!") else 0
    if len(lines) <= first or "SPDX-License-Identifier: Apache-2.0" not in lines[first]:
        report.add(path, first + 1, "the first line is not SPDX-License-Identifier: Apache-2.0")


def includes_of(lines):
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^">]+)', line)
        if match:
            yield number, match.group(1), match.group(2)


def check_room_include(report, path, number, name):
    room = room_of(path)
    if name.startswith("reprise/"):
        return
    if STANDARD_HEADER.match(name):
        if room == "memory" and name in NOT_IN_MEMORY:
            report.add(path, number, f"<{name}> in memory/, which has no threads and no I/O")
        return
    if SYSTEM_HEADER.match(name):
        if room not in SYSTEM_ROOMS:
            report.add(path, number, f"<{name}>: {room}/ uses the standard library only")
        return
    for header, files in THIRD_PARTY:
        if header.match(name) and files.match(path):
            return
    report.add(path, number, f"<{name}> is not among what this file may include")


def check_includes(report, path, lines, paths):
    includes = list(includes_of(lines))
    for number, mark, name in includes:
        if room_of(path) and mark == '"':
            report.add(path, number, f'"{name}" in quotes; write <reprise/...>')
        elif room_of(path):
            check_room_include(report, path, number, name)

    own = None
    if path.endswith("_test.cpp") and path.startswith("tests/"):
        own = path[len("tests/"):-len("_test.cpp")] + ".hpp"
    elif path.endswith(".cpp") and room_of(path):
        own = path[:-len(".cpp")] + ".hpp"
    if own in paths and (not includes or includes[0][2] != f"reprise/{own}"):
        report.add(path, includes[0][0] if includes else 1,
                   f"the first include is not its own header <reprise/{own}>")


def check_banned(report, path, code):
    for number, line in enumerate(code.splitlines(), 1):
        for text, files, reason in BANNED:
            if text in line and files.search(path):
                report.add(path, number, f"'{text}' is banned here: {reason}")


def check_unfinished(report, path, lines):
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            report.add(path, number, "unfinished business belongs in the tracker")


def check_mutexes(report, path, lines):
    """Each mutex of a room says what it guards, on its line or just above."""
    for number, line in enumerate(lines, 1):
        if re.search(r"^\s*(mutable |static )*std::(shared_|recursive_)?mutex \w+(\{\})?;", line):
            near = " ".join(lines[max(0, number - 4):number]).lower()
            if not re.search(r"guard|held|protect|serial", near):
                report.add(path, number, "a mutex that does not name what it guards")


def functions_of(text):
    """Yields (name, first line, last line) of each function at namespace or class level."""
    code = without_comments(text, keep_strings=False)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)),
                  code, flags=re.M)
    stack = []
    head = 0
    for match in re.finditer(r"[{};]|\b(?:public|private|protected)\s*:", code):
        mark = match.group(0)
        if mark == "{":
            lead = code[head:match.start()]
            kind = "other" if in_function(stack) else kind_of_brace(lead)
            stack.append((kind, head + len(lead) - len(lead.lstrip()), lead))
        elif mark == "}" and stack:
            kind, start, lead = stack.pop()
            if kind == "function":
                yield name_of(lead), line_of(code, start), line_of(code, match.start())
            if kind == "value":
                continue  # the declaration goes on behind the braces
        if not in_function(stack):
            head = match.end() if not stack or stack[-1][0] != "value" else head


def in_function(stack):
    return any(kind == "function" for kind, _, _ in stack)


def name_of(lead):
    """The name before the first parenthesis that opens a parameter list."""
    for match in re.finditer(r"(operator *\S+?|[~\w:]+)\s*\(", lead):
        if match.group(1) not in ("decltype", "alignas", "noexcept", "requires", "__attribute__"):
            return re.sub(r"\s", "", match.group(1))
    return "?"


def kind_of_brace(lead):
    lead = lead.strip()
    if re.search(r"\b(namespace|extern)\b", lead) and "(" not in lead:
        return "container"
    if re.match(r"(template\s*<.*>\s*)?(class|struct|union|enum)\b", lead, re.S) and not (
            re.search(r"\)\s*(const|noexcept|override|final|->.*)*$", lead, re.S)):
        return "container"
    if ")" in lead and not re.search(r"[=,(]\s*$", lead):
        # `member_{1}` in a constructor's initializer list is no body.
        initializers = re.search(r"\)[^()]*(?<!:):(?!:)", lead, re.S)
        if initializers and re.search(r"\w$", lead):
            return "value"
        return "function"
    return "value"


def check_functions(report, sources, root):
    allowed = {}
    if (root / RATCHET).is_file():
        for number, line in enumerate((root / RATCHET).read_text().splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                path, name, lines = line.split()
                allowed[path, name] = (int(lines), number)
    for path, text in sources.items():
        for name, first, last in functions_of(text):
            lines = last - first + 1
            if lines <= MAX_FUNCTION_LINES:
                continue
            limit, number = allowed.pop((path, name), (MAX_FUNCTION_LINES, 0))
            if lines > limit:
                report.add(path, first, f"{name} has {lines} lines, at most {limit}")
            elif lines < limit:
                report.add(RATCHET, number, f"{name} shrank to {lines} lines; write that here")
    for (path, name), (_, number) in allowed.items():
        report.add(RATCHET, number, f"{path} has no long function {name} any more")


def test_cases(text):
    """Yields (line, title, tags) of each test case."""
    code = without_comments(text)
    for match in TEST_MACRO.finditer(code):
        strings = []
        position = match.end()
        while len(strings) < 2:
            found = re.compile(r'(?:[\w:<>]+\s*,\s*)?((?:"(?:[^"\\\n]|\\.)*"\s*)+),?\s*').match(
                code, position)
            if not found:
                break
            strings.append("".join(STRING.findall(found.group(1))))
            position = found.end()
        if strings:
            yield line_of(code, match.start()), strings[0], "".join(strings[1:])


def check_tests(report, sources):
    """Checks titles; returns where each promise is cited first."""
    cited = {}
    titles = {}
    for path, text in sources.items():
        if not path.startswith("tests/"):
            continue
        for line, title, tags in test_cases(text):
            if re.search(r'[;\[\]\\"*]|^~', ID.sub("", title)):
                report.add(path, line, "one of ; [ ] \\ \" * in a title: ctest would run nothing")
            if title in titles:
                report.add(path, line, f"the title stands at {titles[title]} too")
            titles.setdefault(title, f"{path}:{line}")
            for promise in ID.findall(title + tags):
                cited.setdefault(promise, (path, line))
    return cited


def check_promises(report, cited, root):
    page = root / PROMISES
    listed = {}
    if page.is_file():
        for number, line in enumerate(page.read_text().splitlines(), 1):
            match = PROMISE.match(line)
            if match and match.group(1) in listed:
                report.add(PROMISES, number, f"{match.group(1)} is listed twice")
            elif match:
                listed[match.group(1)] = number
    for promise, (path, line) in cited.items():
        if promise not in listed:
            report.add(path, line, f"[{promise}] is not listed in {PROMISES}")
    for promise, number in listed.items():
        if promise not in cited:
            report.add(PROMISES, number, f"{promise} is cited by no test")


def check_cpp(report, path, text, lines, paths):
    code = without_comments(text)
    check_includes(report, path, lines, paths)
    check_banned(report, path, code)
    check_unfinished(report, path, lines)
    if room_of(path):
        check_mutexes(report, path, lines)
        if path.endswith(".hpp") and not re.search(r"^#pragma once$", text, re.M):
            report.add(path, 1, "no #pragma once")


def check(root):
    report = Report()
    paths = repository_files(root)
    sources = {}
    for path in paths:
        data = (root / path).read_bytes()
        if b"\0" in data or path == "LICENSE":
            continue
        try:
            text = data.decode()
        except UnicodeDecodeError:
            continue
        lines = text.splitlines()
        check_lines(report, path, text, lines)
        check_license(report, path, text, lines)
        if is_cpp(path):
            sources[path] = text
            check_cpp(report, path, text, lines, set(paths))
    check_functions(report, sources, root)
    check_promises(report, check_tests(report, sources), root)
    return report, len(paths)


def check_format(root, program):
    files = [str(root / path) for path in repository_files(root) if is_cpp(path)]
    run = subprocess.run([program, "--dry-run", "-Werror", *files], capture_output=True, text=True,
                         check=False)
    places = {}
    for path, line in re.findall(r"^(.+?):(\d+):\d+: (?:error|warning): ", run.stderr, re.M):
        places.setdefault(path.replace(f"{root}/", ""), []).append(int(line))
    for path, lines in places.items():
        print(f"{path}:{lines[0]}: not formatted ({len(lines)} places)")
    print(f"format: {len(files)} files; mend with clang-format -i FILE")
    return run.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--format", metavar="PROGRAM", help="run this clang-format instead")
    options = parser.parse_args()
    if options.format:
        return 1 if check_format(options.root, options.format) else 0
    report, count = check(options.root)
    for line in report.lines:
        print(line)
    print(f"tidy: {count} files, {len(report.lines)} complaints")
    return 1 if report.lines else 0


if __name__ == "__main__":
    sys.exit(main())
