"""Random writes through views of one storage: SPMDLINT SPMDRUN [SEEDS].

Which elements a view shows is counted here by their numbers. The checker has to report each read of
what was written since (`stale-alias`), and no other one; programs that derive what they read anew
are run, and their types are to hold."""

import dataclasses
import os
import random
import subprocess
import sys
import tempfile

HEAD = "trace { mode = local }\nmesh m { tp = 2 }\n"
KINDS = ["R", "V", "P"]


@dataclasses.dataclass
class Name:
    text: str
    shape: list
    cells: list  # which elements of the storage it shows, row by row
    made: int  # how many writes it has seen


def count(shape):
    size = 1
    for extent in shape:
        size *= extent
    return size


class Draft:
    """One program. `fresh`: what was overwritten is derived again before it is read."""

    def __init__(self, chance, fresh):
        self.chance, self.fresh = chance, fresh
        self.lines, self.names, self.writes, self.sources = [], [], [], []
        self.stale = set()  # lines that read what is no longer there
        shape = chance.choice([[8], [12], [4, 3], [2, 6], [2, 3, 2], [1, 4]])
        root = Name("%s", shape, list(range(count(shape))), 0)
        kind = chance.choice(KINDS)
        self.lines.append(f"%s = input f32{shape} {kind} {{ requires_grad = false }}")
        self.names.append(root)

    def name(self):
        return f"%{len(self.lines)}"

    def add(self, text, shape, cells, made):
        name = Name(self.name(), shape, cells, made)
        self.lines.append(f"{name.text} {text}")
        self.names.append(name)
        return name

    def is_stale(self, name):
        return any(set(name.cells) & set(write.cells) for write in self.writes[name.made :])

    def read(self, name):
        """The name itself, or what it shows now."""
        if not self.is_stale(name):
            return name
        if not self.fresh:
            self.stale.add(len(self.lines))
            return name
        for write in self.writes[name.made :]:
            if set(name.cells) & set(write.cells):
                text = f"aliases {write.text} = alias {write.text}, {name.text}"
                name = self.add(text, name.shape, name.cells, write.made)
        name.made = len(self.writes)
        return name

    def cut(self, name):
        dim = self.chance.randrange(len(name.shape))
        extent, inner = name.shape[dim], count(name.shape[dim + 1 :])
        first = self.chance.randrange(extent)
        step = self.chance.choice([1, 1, 1, 2])
        last = self.chance.randint(first + 1, extent)
        chosen = range(first, last, step)
        start = first - extent if self.chance.random() < 0.2 else first
        words, shape = f"dim = {dim}, start = {start}, end = {last}", list(name.shape)
        words += f", step = {step}" if step > 1 else ""
        op, shape[dim] = "slice", len(chosen)
        if self.chance.random() < 0.3 and len(shape) > 1:
            op, words, chosen = "select", f"dim = {dim}, index = {start}", [first]
            del shape[dim]
        cells = [c for i, c in enumerate(name.cells) if i // inner % extent in chosen]
        made = name.made
        self.add(f"aliases {name.text} = {op} {name.text} {{ {words} }}", shape, cells, made)

    def split(self, name):
        dim = self.chance.randrange(len(name.shape))
        extent, inner = name.shape[dim], count(name.shape[dim + 1 :])
        if extent < 2:
            return
        at = self.chance.randrange(1, extent)
        results, line = [], len(self.lines)
        for part, chosen in enumerate((range(at), range(at, extent))):
            cells = [c for i, c in enumerate(name.cells) if i // inner % extent in chosen]
            shape = [*name.shape[:dim], len(chosen), *name.shape[dim + 1 :]]
            results.append(Name(f"%{line}.{part}", shape, cells, name.made))
        made = ", ".join(f"{one.text} aliases {name.text}" for one in results)
        sizes = [at, extent - at]
        self.lines.append(f"{made} = split {name.text} {{ dim = {dim}, sizes = {sizes} }}")
        self.names += results

    def count_otherwise(self, name):
        """A reshape that strides can say: of neighbours in memory, or of one dimension."""
        size, shape = len(name.cells), []
        if name.cells != list(range(name.cells[0], name.cells[0] + size)):
            dim = self.chance.randrange(len(name.shape))
            inner = self.chance.choice([d for d in range(1, 7) if name.shape[dim] % d == 0])
            shape = [*name.shape[:dim], name.shape[dim] // inner, inner, *name.shape[dim + 1 :]]
            size = 1
        while size > 1 and self.chance.random() < 0.7:
            shape.append(self.chance.choice([d for d in range(1, size + 1) if size % d == 0]))
            size //= shape[-1]
        shape += [size] if size > 1 or not shape else []
        text = f"aliases {name.text} = reshape {name.text} {{ shape = {shape} }}"
        self.add(text, shape, name.cells, name.made)

    def turn(self, name):
        if len(name.shape) != 2:
            return
        rows, columns = name.shape
        cells = [name.cells[i * columns + j] for j in range(columns) for i in range(rows)]
        text = f"aliases {name.text} = transpose {name.text} {{ dim0 = 0, dim1 = 1 }}"
        self.add(text, [columns, rows], cells, name.made)

    def write(self, name):
        kept = self.chance.choice(["mul_ mut {}, 2.0", "zero_ mut {}", None, None])
        if kept:
            text = f"aliases {name.text} = {kept.format(name.text)}"
        else:
            source, kind = f"%i{len(self.sources)}", self.chance.choice(KINDS)
            self.sources.append(f"{source} = input f32{name.shape} {kind}")
            text = f"aliases {name.text} = copy_ mut {name.text}, {source}"
        written = self.add(text, name.shape, name.cells, len(self.writes) + 1)
        self.writes.append(written)

    def step(self):
        name = self.read(self.chance.choice(self.names[-6:] + self.names[:1]))
        views = [self.cut, self.cut, self.split, self.count_otherwise, self.turn]
        if self.stale and max(self.stale) == len(self.lines):  # nothing is to follow from it
            self.lines.append(f"{self.name()} = neg {name.text}")
        elif self.chance.random() < 0.35 and name.cells:
            self.write(name)
        elif self.chance.random() < 0.3:
            self.lines.append(f"{self.name()} = neg {name.text}")
        else:
            self.chance.choice(views)(name)

    def text(self):
        return HEAD + "\n".join([self.lines[0], *self.sources, *self.lines[1:]]) + "\n"

    def line(self, index):
        """Where a line of the draft is, counted from 1."""
        return HEAD.count("\n") + 1 + index + (len(self.sources) if index else 0)


def draft(seed, fresh):
    made = Draft(random.Random(seed), fresh)
    for _ in range(14):
        made.step()
    return made


def lint(binary, folder, names):
    done = subprocess.run(
        [binary, "--format=concise", "--isolated", *names],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {name: set() for name in names}
    for line in done.stdout.splitlines():
        place, _, rest = line.partition(": ")
        file, number, *_ = place.split(":")
        found[file].add((int(number), rest.partition("[")[2].partition("]")[0]))
    return found, done


def main(lint_binary, run_binary, seeds=400):
    lint_binary, run_binary = map(os.path.abspath, (lint_binary, run_binary))
    wrong, stale, views, ran = [], 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        drafts = {}
        for seed in range(int(seeds)):
            for fresh in (False, True):
                name = f"{seed}{'f' if fresh else ''}.spmd"
                drafts[name] = draft(seed, fresh)
                with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
                    out.write(drafts[name].text())
        found, done = lint(lint_binary, folder, list(drafts))
        if done.returncode not in (0, 1):
            wrong.append(f"spmdlint: exit code {done.returncode}: {done.stderr}")
        clean = []
        for name, made in drafts.items():
            reported = {line for line, finding in found[name] if finding == "stale-alias"}
            expected = {made.line(index) for index in made.stale}
            stale, views = stale + len(expected), views + len(made.lines)
            for line in sorted(reported ^ expected):
                what = "is reported" if line in reported else "is not reported"
                wrong.append(f"{name}:{line}: stale-alias {what}\n{made.text()}")
            if name.endswith("f.spmd") and not found[name]:
                clean.append(name)
        for name in clean:
            line = [run_binary, "--check=all", "--isolated", name]
            done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
            ran += 1
            if done.returncode != 0:
                wrong.append(f"{done.stdout}{done.stderr}\n{drafts[name].text()}")
    for text in wrong[:5]:
        print(text)
    counts = f"{len(drafts)} programs, {views} names, {stale} stale reads, {ran} run"
    print(f"{counts}: {len(wrong)} wrong")
    return bool(wrong) or not stale or ran < int(seeds) // 8


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
