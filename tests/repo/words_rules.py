# SPDX-License-Identifier: Apache-2.0
"""Patterns of check_words.py: words that a reader of PyTorch, oneDNN, CUTLASS or cuDNN does not know.

A pattern finds the private meaning only. Where a word has a normal meaning as well, the comment of its row
says which uses pass.
"""
import re

MARK = "_"  # stands for code in backticks, and matches no pattern


def rule(name, advice, needles, pattern):
    return name, advice, needles.split("|"), re.compile(pattern)


# A word is capital at the start of a sentence only: `Card` in the middle of one is an identifier.
def word(text):
    first = text[0]
    return rf"(?:\b{first}|(?:^|(?<=[.!?:] )){first.upper()}){text[1:]}"


def free(after="", before="", text=""):
    """Returns the pattern of `text` without uses that follow one of `after` or precede one of `before`."""
    behind = "".join(f"(?<!{words})" for words in after.split("|") if words)
    return rf"(?i){behind}\b(?:{text})\b" + (rf"(?!{before})" if before else "")


PRIVATE = [
    # -- words of the project ------------------------------------------------------------------------
    # `graphics card` passes (GPU is better).
    rule("word", "algorithm", "card",
         rf"(?<!graphics )(?<!\w)(?<!\.){word('cards?')}\b(?![.]\w|[<:(_]\w|->)"),
    # 'room for', 'no room', 'enough room', 'make room', 'want of room' pass: space.
    rule("word", "folder", "room",
         free("no |more |enough |makes |make |leaves |leave |have |has |with |want of ",
              " (?:for|left|to|in memory|is left)", "rooms?")),
    # `in-house` passes, and Street View House Numbers (capital).
    rule("word", "architecture, repository layout", "house", r"(?<!-)\bhouses?\b(?! number)"),
    rule("word", "operator", "heavy layer", free(text="heavy layers?")),
    # The verb ('halves the time') and halves of a named thing ('both halves', 'halves of a warp') pass.
    rule("word", "half precision, fp16/bf16", "halves",
         free("two |both |lower |upper |high |low |its |in |into ",
              r" (?:the|a|an|its|their|it|of (?:a|an|the|its|their|each|this|one)|this|that|each|every|both)\b", "halves")),
    # Scale, twiddle, constant factors, and factors of a number pass.
    rule("word", "operands", "factor",
         free("scale |scaling |twiddle |constant |prime |common ", r" of (?:\d|two\b|ten\b)", "factors")
         + r"|\b(?:left|right|other|half|both|first|second) factors?\b|\bas an? factors?\b|\bis an? factor\b(?! of)"),
    # Only together with registers: other sums are sums.
    rule("word", "accumulators", "register",
         free(text=r"sums\b[^.;]{0,40}\bregisters?|registers?\b[^.;]{0,40}\bsums")),
    # Depth of a network, pipeline, tree, recursion, of bits or an image passes; `depthwise` is a word.
    rule("word", "K dimension, reduction length", "depth",
         free("bit |pipeline |recursion |tree |queue |network |colour |search |[Ss]tochastic ",
              "-| multiplier| of (?:the |a |this )?(?:network|net|pipeline|tree|recursion|model|stack|queue|folder|nesting)",
              "depths?")),
    rule("word", "TMA", "copy", free(text="copy engines?")),
    rule("word", "L1 / L2", "cache", free(text="(?:first|second) caches?")),
    rule("word", "SM", "multiprocessor", r"(?<![\w.])\b[Mm]ultiprocessors?\b(?!_)"),
    # 'stands for', 'stands in for', 'stand-alone' pass.
    rule("word", "is, is stored", "stand|stood",
         free("", r"-| for\b| in for\b| alone\b| out\b| up\b", "stands?|stood|standing")),
    # A number that lies between two others passes.
    rule("word", "is, is stored", "lie|lain|lying", free("", " between", "lie|lies|lain|lying")),
    # 'turned on', 'turned off', 'turned into' pass.
    rule("word", "flipped, rotated by 180 degrees, transposed", "turned",
         free(text="turned (?:round|around|kernels?|weights?|taps?|by (?:180|90)|about|over)")
         + r"|\b(?:kernels?|weights?|taps?|w|filters?|is|are|them|it|each) turned\b"
           r"(?! (?:on|off|into|to|out|away|back|round|around|by|about|over)\b)"),
    rule("word", "pruned weights", " out",
         free("", " of", "(?:weights?|blocks?|filters?|channels?|those|ones|what) (?:that |which )?(?:is|are|was|were) out")),
    # Division with a ceiling passes.
    rule("word", "measured peaks", "ceiling",
         r"(?<![\w/.])\b[Cc]eilings?\b(?![_.]\w| division| of (?:a|the) (?:quotient|division))"),
    # Access from GPU to GPU passes ('peer access', 'peer to peer'), and names of files and of types.
    rule("word", "baseline", "peer",
         r"(?<![\w/._-])\b(?:peers?|Peers?(?= [a-z]))\b(?![/_.]\w| access| to peer|-| memory| copy| copies| review)"),
    rule("word", "NHWC", "channels", free(text="channels? last")),
    # Loops, products and registers may be blocked; so may a thread.
    rule("word", "NCHW16c", "blocked",
         free("-|cache |register ", r"_| (?:by|until|on|while|loops?|products?|thread|signal|matrix|gemm)", "blocked")),
    # Curves that are drawn, learned or sorted along pass: only those of a layer are meant.
    rule("word", "activation", "curve",
         free(text="(?:bias|norm|residual|relu),? (?:(?:and|or) )?(?:(?:the|its|a) )?curves?|curves? applied|no curve"
                   "|behind (?:a|the|its) curve")
         + "|" + free("Z |Z-|Hilbert |Morton |training |learning |loss |accuracy |Pareto |its |a |of |smooth |in ", "",
                      "curves? (?:and|or|behind|after|is applied|are applied|between)").replace("(?i)", "")),
    # 'a way to', 'ways of doing', 'in this way', 'on its way' and 'closed form' pass.
    rule("word", "an implementation, a path, a variant", "way|form",
         free("", " (?:of (?:a|the) |submit)",
              "(?:a|no|another|one|each|every|that|second|first|faster|fastest|slow|slower|simple|simplest|dense|planned"
              "|same|emulated) forms?")
         + r"|\b(?:two|three|four|five|several|other|second|faster|fastest|slowest|quickest|best) ways?\b"
           r"(?! (?:to|of \w+ing|round|around|or|in which|out))"),
    rule("word", "custom", " own", free(text="of (?:its|their|one's|his|her|our|your|my|each one's) own")),
    # 'readers who want' passes: it names the readers.
    rule("word", "the caller, producer, consumer", "who",
         r"(?i)(?:^|[.,:;] |\b(?:and|or|knows?|says?|to|of|by|for) )who (?:asks?|gives?|wants?|needs?|makes?|reads?|takes?)\b"
         r"|\bwhoever\b"),
    # -- Germanisms ----------------------------------------------------------------------------------
    # 'there is no', 'is no longer' and 'is no more than' pass.
    rule("german", "is not a", "is no|are no|was no|were no",
         free("there ", r" (?:longer|more|less|better|worse|fewer|larger|smaller|faster|slower|bigger|doubt|need|way|room"
                        r"|point|such)\b", "(?:is|are|was|were) no")),
    # 'leave alone', 'let alone', 'stand-alone' and 'runs alone' pass.
    rule("german", "only", "alone",
         free("stand-|let |runs |run |left |is |are |works |it |them |trains ", "", "alone")),
    rule("german", "again", "anew", free(text="anew")),
    rule("german", "next to, compared with", "beside", free(text="beside")),
    rule("german", "before, after", "in front of", free(text="in front of")),
    # 'fall behind', 'is behind' a leader, 'leave behind' and 'behind a flag' pass.
    rule("german", "after", "behind",
         free("fall |falls |lag |lags |and |left |leave |leaves ",
              " (?:--|an? (?:flag|proxy|firewall|option|switch)|on |most)", "behind")),
    # Comparisons ('twice as long as', 'takes as long as') pass.
    rule("german", "while", "as long as",
         free(r"times |times, |twice |half |nearly |about |just |at least |takes |take |is |are |third |\d ", "",
              "as long as")),
    rule("german", "as ... says", "that is what", free(text="that is what")),
    rule("german", "there is", " gives",
         free("", r" \w+ (?:that|which|in|of|for)\b", "(?:it|there) gives (?:no|a|an|one|two|many)")
         .replace(r"(?! \w+", r"(?= \w+")),
]

# (advice of the rule, part of the path, words around): uses that pass.
ALLOWED = [
    ("flipped, rotated by 180 degrees, transposed", "", "turned by up to"),
    ("folder", "datasets/", "room"),  # rooms of a scan
    ("folder", "experiments/results/sparse", "room"),
    ("folder", "layers/sparse_conv/split_mask/", "shells, rooms"),
    ("folder", "experiments/bench/sparse/", "room"),
    ("measured peaks", "experiments/bench/sparse/", "floor, ceiling, walls"),
    ("operands", "layers/batch_norm2d/", "factors"),  # factor and shift of a channel
    ("baseline", "framework/distributed/", "peer"),  # other processes of a group
    ("baseline", "experiments/trainer/ranks/", "peer"),
    ("baseline", "layers/plan/ranks/", "peer"),
]

OPENINGS = re.compile(r"[\"'(*_]*(Of|Who|Whose|As what|With its|What(?= [^?]*\b(?:is|are)\b[^?]*$))(?=[\s,])(?! course)")

MAYBE_OPENING = re.compile(r"\b(?:Of|Who|Whose|As what|With its|What)\b")  # faster than OPENINGS

HISTORY = re.compile(
    r"(?i)\bsince then\b|\b(?:was|were|been) mended\b|\bbefore, (?:it|they)\b"
    r"|(?:^|(?<=[.;] ))Before, (?:it|they|the|a|each|this|one)\b|\bformerly\b"
    r"|\bin earlier versions\b|\bat that time\b|\buntil recently\b|\bin the past\b|\bnot (?:any more|anymore)\b"
    r"|(?<!is )(?<!are )(?<!be )(?<!was )(?<!were )\bused to (?:be|have|take|read|write|run|make|do|need)\b")
HISTORY_NEEDLES = ["since then", "mended", "before, ", "formerly", "in earlier versions", "at that time", "until recently",
                   "in the past", "any more", "anymore", "used to"]
HISTORY_EXEMPT = re.compile(r"^CHANGELOG\.md$|/records/|^experiments/results/")
SENTENCE_EXEMPT = re.compile(r"^CHANGELOG\.md$")

# Words that end in 's' and are not verbs, and verbs in the third person that do not end so.
NOT_VERBS = set("""
access activations address addresses algorithms always as axes axis backwards basis batches besides bias bits blocks bounds
bytes cards channels characters chunks class classes clocks clusters codes columns convolutions coordinates cycles
derivatives digits elements entries errors factors fields files floats flops functions gradients grouped halves images
indices instructions is items its kernels keys kinds lanes layers less lines lists loss microseconds milliseconds
multiplications neighbours numbers numerics octets ones operands operations options others panels parameters parts
pass perhaps pieces pixels places planes plus pointers points powers problems process products quads results rows rules
samples scales seconds shapes sites sizes slices sometimes statistics status steps strides strings strips sums tables taps
tensors tests this threads thus tiles times towards types units unless us values ways weights whereas windows words
workspaces yes""".split())
OTHER_VERBS = {"may", "must"}
