"""Problems: what a `problem.py` may say (`format`), and how a folder is found and checked.

`from kbtui.problems import Case, any_int, multiple_of` is what problem files write; this module and `format` therefore
import the standard library only, since the oracle loads them under the user's interpreter.
"""

from kbtui.problems.format import Case, Vary, any_int, at_least, multiple_of, one_of, power_of_two

__all__ = ["Case", "Vary", "any_int", "at_least", "multiple_of", "one_of", "power_of_two"]
