"""Windows and observations, and the estimators over them: rates, selectivity, cost a row, utilisation, sojourn."""
