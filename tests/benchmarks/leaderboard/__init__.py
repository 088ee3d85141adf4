"""The zoo beside what people take on a CPU instead: speed, and fidelity to the official class in float32.

Every contender runs in a process of its own, since two engines in one hold each other's threads up. They compute the
same batches in turn; what is reported follows from medians.
"""
