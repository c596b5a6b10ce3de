#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 hybridstate contributors
# SPDX-License-Identifier: Apache-2.0
"""Reference values of the statistics, computed by SciPy.

    pip install scipy
    python tests/golden/make_statistics.py tests/golden/data/statistics.json

The tests read the file; they need no Python.
"""
import json
import sys

import numpy as np
import scipy
from scipy import special, stats

QUANTILES = [(p, df) for df in (1, 2, 3, 5, 8, 11, 23, 60)
             for p in (1e-6, 0.005, 0.025, 0.05, 0.3, 0.5, 0.9, 0.95, 0.975, 0.995, 0.9999)]
CDFS = [(t, df) for df in (1, 2, 5, 11.5, 40) for t in (-30.0, -2.5, -0.1, 0.0, 0.7, 2.0, 12.0)]
BETAS = [(a, b, x) for a in (0.5, 1, 2.5, 11.5) for b in (0.5, 3, 20) for x in (1e-4, 0.2, 0.5, 0.97)]
GAMMAS = [0.1, 0.5, 1, 1.5, 2, 3.7, 8, 12.5, 100, 1234.5]


def sample(seed, n, shift):
    return [round(float(v), 6) for v in np.random.default_rng(seed).normal(shift, 0.08, n)]


def sign_flip(values):
    """Half the assignments of SciPy's exact test of the mean; ties by its own tolerance."""
    result = stats.permutation_test((values,), np.mean, permutation_type="samples",
                                    n_resamples=np.inf, alternative="two-sided")
    return float(result.pvalue)


def t_interval(values, level):
    return [float(v) for v in stats.t.interval(level, len(values) - 1, loc=np.mean(values),
                                               scale=stats.sem(values))]


samples = [sample(1, 6, 0.05), sample(2, 9, 0.03), sample(3, 12, 0.0), [0.1, 0.1, -0.1, 0.2, 0.0, 0.3]]
out = {
    "versions": {"scipy": scipy.__version__, "numpy": np.__version__},
    "student_quantile": [[p, df, float(stats.t.ppf(p, df))] for p, df in QUANTILES],
    "student_cdf": [[t, df, float(stats.t.cdf(t, df))] for t, df in CDFS],
    "incomplete_beta": [[a, b, x, float(special.betainc(a, b, x))] for a, b, x in BETAS],
    "log_gamma": [[x, float(special.gammaln(x))] for x in GAMMAS],
    "samples": [{"values": v, "sign_flip": sign_flip(v), "t90": t_interval(v, 0.90),
                 "t95": t_interval(v, 0.95), "t99": t_interval(v, 0.99),
                 "geometric_mean_of_exp": float(stats.gmean(np.exp(v)))} for v in samples],
    "bootstrap": [{"values": v, "interval": [float(e) for e in stats.bootstrap(
        (v,), np.mean, n_resamples=200000, confidence_level=0.95, method="percentile",
        random_state=5).confidence_interval]} for v in samples[:3]],
}
with open(sys.argv[1], "w", encoding="utf-8") as f:
    f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()) + "\n}")
    f.write("\n")
