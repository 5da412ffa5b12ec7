# SPDX-License-Identifier: Apache-2.0
"""The weather of the example: what the sky does, and how many degrees Celsius it has, in the cities that there are."""

WEATHER = {
    "Casablanca": ("windy", 23),
    "Lima": ("foggy", 17),
    "Nairobi": ("sunny", 26),
    "Osaka": ("rainy", 19),
    "Reykjavik": ("snowy", -4),
    "Tromsø": ("cloudy", 2),
    "Wellington": ("stormy", 11),
}


def require_known_city(city: str) -> str:
    """Return `city`; ValueError if it has no weather."""
    if city not in WEATHER:
        raise ValueError(f"unknown city {city!r}; known are {', '.join(WEATHER)}")
    return city
