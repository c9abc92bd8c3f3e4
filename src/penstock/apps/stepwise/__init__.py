"""The applications of Liu et al., "A Stepwise Auto-Profiling Method", ACM TAAS 12(4), 2017, section 6.1.1.

`linear`, `diamond` and `star` are graphs of operators that compute, parse JSON or wait. `word_count` counts the words
of tweets, and `waiting_word_count` waits 1 ms for each tweet in addition. `twitter_sentiment` averages the sentiment of
tweets and ranks their hashtags. Each module has a function `behaviour()` for simulation: the cost of its operators is
an assumption about one core, not a measurement.
"""
