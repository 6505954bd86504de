"""Is a version right, and honestly so?"""
