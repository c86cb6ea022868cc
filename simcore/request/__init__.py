"""From the words of a request to a job with every name and default resolved.

``make.read_request`` reports every mistake at once and returns a ``resolved.Request``: names by
``inputs`` and ``training_library``, what is said of the model by ``model_settings``, its division
among ranks by ``placed``, what was assumed by ``assumptions``. ``launch`` and ``emit`` read and
write launch files of other programs.
"""
